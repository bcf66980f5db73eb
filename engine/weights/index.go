package weights

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const maxShards = 4096

// shard is one file of an index and the tensors that it must hold.
type shard struct {
	file    string
	tensors []string
}

// readIndex reads model.safetensors.index.json: the shards in alphabetical
// order. A shard is a plain file name ending in .safetensors, so that an index
// can name neither itself, nor another index, nor anything outside its folder.
func readIndex(path string) ([]shard, error) {
	name := filepath.Base(path)
	text, err := readSmall(path, maxHeader)
	if err != nil {
		return nil, &Error{File: name, Offset: -1, Reason: "read the shard index", Err: err}
	}
	var index struct {
		Metadata  jsontext.Value    `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, &Error{File: name, Offset: -1, Reason: "not a shard index", Err: err}
	}
	if len(index.WeightMap) == 0 {
		return nil, &Error{File: name, Offset: -1, Reason: "weight_map names no tensor"}
	}
	if len(index.WeightMap) > maxTensors {
		return nil, &Error{File: name, Offset: -1, Reason: fmt.Sprintf("weight_map has more than %d tensors", maxTensors)}
	}
	byFile := map[string][]string{}
	for t, file := range index.WeightMap {
		if err := checkShardName(file); err != nil {
			return nil, &Error{File: name, Tensor: t, Offset: -1, Reason: "weight_map", Err: err}
		}
		byFile[file] = append(byFile[file], t)
	}
	if len(byFile) > maxShards {
		return nil, &Error{File: name, Offset: -1, Reason: fmt.Sprintf("more than %d shards", maxShards)}
	}
	var shards []shard
	for file, tensors := range byFile {
		slices.Sort(tensors)
		shards = append(shards, shard{file, tensors})
	}
	slices.SortFunc(shards, func(a, b shard) int { return strings.Compare(a.file, b.file) })
	return shards, nil
}

func checkShardName(file string) error {
	switch {
	case strings.HasSuffix(file, ".json"):
		return fmt.Errorf("shard %q is an index, and an index cannot be a shard", file)
	case strings.ContainsAny(file, "/\\\x00") || !filepath.IsLocal(file):
		return fmt.Errorf("shard %q is outside of the model's folder", file)
	case !strings.HasSuffix(file, suffix) || file == suffix:
		return fmt.Errorf("shard %q is not a %s file", file, suffix)
	}
	return nil
}

// readSmall reads a regular file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", filepath.Base(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("longer than %d bytes", limit)
	}
	return text, err
}
