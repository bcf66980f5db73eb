package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/api"
	"athanor/server/files/dataset"
)

func filesCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "files", Short: "Check, upload and list data files"}
	cmd.AddCommand(checkCommand(f), uploadCommand(f), listFilesCommand(f))
	return cmd
}

func uploadCommand(f *flags) *cobra.Command {
	var purpose string
	cmd := &cobra.Command{
		Use: "upload FILE", Short: "Upload a data file and wait until it is validated", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(f, cmd, func(c *client) error {
				file, err := c.upload(cmd, args[0], purpose)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "uploaded %s: %s, %d bytes\n", file.ID, file.Filename, file.Bytes)
				return c.ingested(cmd, file)
			})
		},
	}
	cmd.Flags().StringVar(&purpose, "purpose", dataset.FineTune, "fine-tune, eval or batch-api")
	return cmd
}

// openNamed checks what a file is to be and opens it; size is in bytes.
func openNamed(name, purpose string) (named api.NewFile, file *os.File, size int64, err error) {
	named = api.NewFile{Purpose: purpose, FileName: name}
	if err := named.Validate(); err != nil {
		return named, nil, 0, err
	}
	if file, err = os.Open(name); err != nil {
		return named, nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return named, nil, 0, errors.Join(err, file.Close())
	}
	return named, file, info.Size(), nil
}

// upload streams a file to the server.
func (c *client) upload(cmd *cobra.Command, name, purpose string) (*api.File, error) {
	named, file, size, err := openNamed(name, purpose)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.finish()
	body, form := io.Pipe()
	w := multipart.NewWriter(form)
	go func() {
		form.CloseWithError(writeForm(w, named, &shown{r: file, bar: bar, phase: "uploading", total: size}))
	}()
	defer body.Close() // ends the goroutine when the server answers early
	resp, err := c.do(cmd.Context(), http.MethodPost, "/files", w.FormDataContentType(), body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out api.File
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return &out, nil
}

func writeForm(w *multipart.Writer, named api.NewFile, content io.Reader) error {
	err := errors.Join(w.WriteField("purpose", named.Purpose), w.WriteField("file_type", named.FileType))
	if err != nil {
		return err
	}
	part, err := w.CreateFormFile("file", filepath.Base(named.FileName))
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, content); err != nil {
		return err
	}
	return w.Close()
}

// shown draws progress of what is read.
type shown struct {
	r           io.Reader
	bar         *progress
	phase       string
	done, total int64
}

func (s *shown) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.done += int64(n)
	if s.bar.terminal {
		s.bar.show(s.phase, s.done, s.total)
	}
	return n, err
}

// ingested waits for the end of the validation and says how it went.
func (c *client) ingested(cmd *cobra.Command, file *api.File) error {
	for wait := 20 * time.Millisecond; !final(file.ProcessingStatus); wait = min(2*wait, 2*time.Second) {
		if err := pause(cmd.Context(), wait); err != nil {
			return err
		}
		if err := c.call(cmd.Context(), http.MethodGet, "/files/"+file.ID, nil, file); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	switch r := file.ValidationReport; {
	case file.ProcessingStatus == "FAILED":
		return errors.New("the server could not process the file; its log says why")
	case r == nil:
		fmt.Fprintln(out, "ready")
	case r.Valid:
		fmt.Fprintf(out, "valid: %d lines of the %s format\n", r.NLines, r.DatasetFormat)
	default:
		fmt.Fprintln(out, strings.Join(r.Errors, "\n"))
		return fmt.Errorf("%d of %d lines have errors", r.ErrorCount, r.NLines)
	}
	return nil
}

func final(status string) bool {
	return status == "COMPLETED" || status == "INVALID_FORMAT" || status == "FAILED"
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func listFilesCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the uploaded files, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(f, cmd, func(c *client) error {
				var list api.FileList
				if err := c.call(cmd.Context(), http.MethodGet, "/files", nil, &list); err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tNAME\tPURPOSE\tBYTES\tSTATUS\tCREATED")
				for _, f := range list.Data {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", f.ID, f.Filename, f.Purpose, f.Bytes, f.ProcessingStatus,
						time.Unix(f.CreatedAt, 0).UTC().Format(time.RFC3339))
				}
				return w.Flush()
			})
		},
	}
}
