package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"athanor/server/api"
)

func downloadCommand(f *flags) *cobra.Command {
	var form, to string
	var step int
	var tokenized bool
	cmd := onJob(f, "download", "Download the weights that a job made, or its tokenized dataset, as a .tar.zst", func(cmd *cobra.Command, c *client, id string) error {
		var resp *http.Response
		var err error
		switch {
		case tokenized && (form != "" || step != 0):
			return errors.New("tokenized: cannot be given together with checkpoint and step")
		case tokenized:
			resp, err = c.tokenizedDataset(cmd.Context(), id)
		default:
			resp, err = c.weights(cmd.Context(), id, form, step)
		}
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return save(cmd, resp, to)
	})
	cmd.Flags().StringVar(&form, "checkpoint", "", "merged, adapter or model_output_path (default: what the job made)")
	cmd.Flags().IntVar(&step, "step", 0, "the checkpoint of a step instead of the result")
	cmd.Flags().BoolVar(&tokenized, "tokenized", false, "the first rows of the data as the training saw them")
	cmd.Flags().StringVarP(&to, "output", "o", "", "where to write (default: the name that the server gives, here)")
	return cmd
}

func (c *client) weights(ctx context.Context, id, form string, step int) (*http.Response, error) {
	q := url.Values{"ft_id": {id}}
	if form != "" {
		q.Set("checkpoint", form)
	}
	if step != 0 {
		q.Set("checkpoint_step", strconv.Itoa(step))
	}
	return c.do(ctx, http.MethodGet, "/finetune/download?"+q.Encode(), "", nil)
}

// tokenizedDataset follows the link to the archive, which leads to the server
// itself or to the object storage.
func (c *client) tokenizedDataset(ctx context.Context, id string) (*http.Response, error) {
	var link api.TokenizedDataset
	if err := c.call(ctx, http.MethodGet, jobPath(id, "download-tokenized-dataset"), nil, &link); err != nil {
		return nil, err
	}
	if path, own := strings.CutPrefix(link.URL, "http://athanor/v1"); own {
		return c.do(ctx, http.MethodGet, path, "", nil)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link.URL, nil)
	if err != nil {
		return nil, errors.New("the server gave a link that is not a URL")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // the URL is a secret
		}
		return nil, fmt.Errorf("fetch from the object storage: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("the object storage answered %s", resp.Status), resp.Body.Close())
	}
	return resp, nil
}

// save writes an answer to a file, which appears when it is whole.
func save(cmd *cobra.Command, resp *http.Response, to string) (err error) {
	if to == "" {
		if to = offered(resp); to == "" {
			return errors.New("output: the server gives no name, so give one")
		}
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("output: %s is there already", to)
	}
	file, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".part-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	bar := newProgress(cmd.ErrOrStderr())
	n, err := io.Copy(file, &shown{r: resp.Body, bar: bar, phase: "downloading", total: resp.ContentLength})
	bar.finish()
	if err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
		err = fmt.Errorf("%d of %d bytes came", n, resp.ContentLength)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if err := os.Rename(file.Name(), to); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes\n", to, n)
	return nil
}

// offered is the name that the server gives a download, without any folder.
func offered(resp *http.Response) string {
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
	name := filepath.Base(params["filename"])
	if err != nil || name == "." || name == string(filepath.Separator) || strings.HasPrefix(name, ".") {
		return ""
	}
	return name
}
