package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxRows is how many rows of a dataset are kept.
	MaxRows = 100
	maxLine = 256 << 20 // bytes of one row as JSON
)

// Write reads rows and writes the archive. train and eval are JSON lines like
// {"input_ids":[1],"attention_mask":[1],"labels":[-100]}, of which the first MaxRows
// are taken; eval may be nil.
func Write(w io.Writer, train, eval io.Reader) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = addDataset(t, "train_dataset", train)
	if err == nil && eval != nil {
		err = addDataset(t, "eval_dataset", eval)
	}
	if err != nil {
		return errors.Join(err, z.Close())
	}
	return errors.Join(t.Close(), z.Close())
}

// row is one line of a tokenized dataset.
type row struct {
	InputIDs      []int64 `json:"input_ids"`
	AttentionMask []int64 `json:"attention_mask"`
	Labels        []int64 `json:"labels"`
}

// read takes the first rows of a dataset as columns.
func read(r io.Reader) ([]column, error) {
	// The widths are those that the library itself chooses for these columns.
	columns := []column{{name: "input_ids", bits: 32}, {name: "attention_mask", bits: 8}, {name: "labels", bits: 64}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	items := 0
	for n := 1; n <= MaxRows && lines.Scan(); n++ {
		var v row
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(v.AttentionMask) != len(v.InputIDs) || len(v.Labels) != len(v.InputIDs) {
			return nil, fmt.Errorf("line %d: %d input_ids, %d attention_mask and %d labels", n, len(v.InputIDs), len(v.AttentionMask), len(v.Labels))
		}
		if items += len(v.InputIDs); items > maxItems {
			return nil, fmt.Errorf("line %d: more than %d tokens in all", n, maxItems)
		}
		for i, list := range [][]int64{v.InputIDs, v.AttentionMask, v.Labels} {
			for _, x := range list {
				if !columns[i].fits(x) {
					return nil, fmt.Errorf("line %d: %s has %d, which does not fit %d bits", n, columns[i].name, x, columns[i].bits)
				}
			}
			columns[i].rows = append(columns[i].rows, list)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(columns[0].rows)+1, err)
	}
	return columns, nil
}

// addDataset adds the folder of one dataset to the archive.
func addDataset(t *tar.Writer, folder string, r io.Reader) error {
	columns, err := read(r)
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	features, err := json.Marshal(features(columns))
	if err != nil {
		return err
	}
	var data bytes.Buffer
	// The library takes the types from here when the columns alone could mean others.
	meta := [][2]string{{"huggingface", `{"info": {"features": ` + string(features) + `}}`}}
	if err := writeArrow(&data, columns, meta); err != nil {
		return err
	}
	const name = "data-00000-of-00001.arrow"
	sum := sha256.Sum256(data.Bytes())
	info := map[string]any{"citation": "", "description": "", "features": json.RawMessage(features), "homepage": "", "license": ""}
	state := map[string]any{
		"_data_files": []any{map[string]string{"filename": name}}, "_fingerprint": hex.EncodeToString(sum[:8]),
		"_format_columns": nil, "_format_kwargs": map[string]any{}, "_format_type": nil, "_output_all_columns": false, "_split": nil,
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	return errors.Join(addFile(t, folder+"/"+name, data.Bytes()), addJSON(t, folder+"/dataset_info.json", info), addJSON(t, folder+"/state.json", state))
}

// features are the types of the columns as the library writes them.
func features(columns []column) map[string]any {
	out := map[string]any{}
	for _, c := range columns {
		item := map[string]any{"dtype": fmt.Sprintf("int%d", c.bits), "_type": "Value"}
		out[c.name] = map[string]any{"feature": item, "_type": "Sequence"}
	}
	return out
}

func addJSON(t *tar.Writer, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return addFile(t, name, data)
}

func addFile(t *tar.Writer, name string, data []byte) error {
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644, ModTime: time.Unix(0, 0)})
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	return err
}
