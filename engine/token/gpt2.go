package token

import (
	"fmt"
	"strconv"
	"strings"
)

// loadVocabAndMerges builds the byte-level BPE whose rules are not in the files
// but in the tokenizer class that the configuration names.
func loadVocabAndMerges(vocab, merges []byte, cfg *config) (*Tokenizer, error) {
	spec := &modelSpec{kind: "BPE", unk: -1}
	if err := decodeJSON(vocab, &spec.vocab); err != nil {
		return nil, malformed("vocab.json: %v", err)
	}
	var err error
	if spec.merges, err = parseMergesText(string(merges)); err != nil {
		return nil, err
	}
	f := &file{Decoder: []byte(`{"type":"ByteLevel"}`)}
	switch class := strings.TrimSuffix(cfg.Class, "Fast"); class {
	case "", "GPT2Tokenizer":
		f.PreTokenizer = fmt.Appendf(nil, `{"type":"ByteLevel","add_prefix_space":%t}`, cfg.AddPrefixSpace)
		cfg.fill(&config{BOS: tokenName{endOfText}, EOS: tokenName{endOfText}, UNK: tokenName{endOfText}})
	case "Qwen2Tokenizer":
		f.Normalizer = []byte(`{"type":"NFC"}`)
		f.PreTokenizer = fmt.Appendf(nil, `{"type":"Sequence","pretokenizers":[
			{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated"},
			{"type":"ByteLevel","add_prefix_space":%t,"use_regex":false}]}`, strconv.Quote(qwen2Pattern), cfg.AddPrefixSpace)
		cfg.fill(&config{EOS: tokenName{endOfText}, PAD: tokenName{endOfText}})
	default:
		return nil, unsupported("vocab.json and merges.txt of tokenizer_class %q", class)
	}
	return build(spec, f, cfg)
}

const endOfText = "<|endoftext|>"

// parseMergesText reads merges.txt: a line "a b" each, after a version line.
func parseMergesText(s string) ([][2]string, error) {
	var list [][2]string
	for n, line := range strings.Split(s, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || n == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		if len(list) == maxMerges {
			return nil, malformed("merges.txt: more than %d merges", maxMerges)
		}
		pair, err := cutMerge(line)
		if err != nil {
			return nil, malformed("merges.txt: line %d: %v", n+1, err)
		}
		list = append(list, pair)
	}
	return list, nil
}

// cutMerge cuts "a b" into its two tokens, which hold no space themselves.
func cutMerge(line string) (pair [2]string, err error) {
	a, b, ok := strings.Cut(line, " ")
	if !ok || a == "" || b == "" || strings.Contains(b, " ") {
		return pair, fmt.Errorf("%.60q is not two tokens with a space between them", line)
	}
	return [2]string{a, b}, nil
}
