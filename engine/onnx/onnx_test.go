package onnx_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"athanor/engine/onnx"
)

// sample has every field that the structures know.
func sample() *onnx.Model {
	inner := &onnx.Graph{Name: "then", Outputs: []onnx.ValueInfo{{Name: "y", Type: onnx.BoolType, Dims: []onnx.Dim{}}}}
	return &onnx.Model{
		IRVersion: onnx.IRVersion, Producer: "athanor",
		Opsets:   []onnx.Opset{{Version: onnx.OpsetONNX}, {Domain: onnx.DomainMicrosoft, Version: onnx.OpsetMicrosoft}},
		Metadata: map[string]string{"b": "2", "a": "1", "empty": ""},
		Graph: &onnx.Graph{
			Name: "main",
			Nodes: []*onnx.Node{{
				Name: "n0", OpType: "Thing", Domain: onnx.DomainMicrosoft,
				Inputs: []string{"x", "", "w"}, Outputs: []string{"", "y"},
				Attributes: []onnx.Attribute{
					{Name: "f", Type: onnx.AttrFloat, F: -0.5},
					{Name: "zero", Type: onnx.AttrInt},
					{Name: "i", Type: onnx.AttrInt, I: math.MinInt64},
					{Name: "s", Type: onnx.AttrString, S: []byte("hi\x00")},
					{Name: "t", Type: onnx.AttrTensor, T: &onnx.Tensor{Type: onnx.Int64, Dims: []int64{1}, Raw: make([]byte, 8)}},
					{Name: "g", Type: onnx.AttrGraph, G: inner},
					{Name: "fs", Type: onnx.AttrFloats, Floats: []float32{1, -2.5}},
					{Name: "is", Type: onnx.AttrInts, Ints: []int64{-1, 0, 300}},
					{Name: "ss", Type: onnx.AttrStrings, Strings: [][]byte{[]byte("a"), {}}},
				},
			}},
			Initializers: []*onnx.Tensor{
				{Name: "w", Type: onnx.Int4, Dims: []int64{3}, Raw: []byte{0x21, 0x03}},
				{Name: "scalar", Type: onnx.Float, Raw: []byte{0, 0, 128, 63}},
				{Name: "none", Type: onnx.Float, Dims: []int64{0, 4}, Raw: []byte{}},
				{Name: "out", Type: onnx.Float, Dims: []int64{300}, External: &onnx.External{Location: "w/data.bin", Offset: 4096, Length: 1200}},
			},
			Inputs: []onnx.ValueInfo{
				{Name: "x", Type: onnx.Float, Dims: []onnx.Dim{{Symbol: "batch"}, {Size: 3}, {Size: 0}, {Size: -1}}},
				{Name: "anyrank", Type: onnx.Float},
			},
			Outputs: []onnx.ValueInfo{{Name: "y", Type: onnx.BFloat16, Dims: []onnx.Dim{{Size: 1}}}},
			Values:  []onnx.ValueInfo{{Name: "mid", Type: onnx.Int32, Dims: []onnx.Dim{{Size: 7}}}},
		},
	}
}

func mustEncode(t testing.TB, m *onnx.Model) []byte {
	t.Helper()
	b, err := onnx.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	b := mustEncode(t, want)
	got, err := onnx.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got.Graph, want.Graph)
	}
	if again := mustEncode(t, got); string(again) != string(b) {
		t.Error("encoding twice gives different bytes")
	}
}

func TestEncodeRefuses(t *testing.T) {
	deep := &onnx.Graph{}
	for range onnx.MaxDepth + 1 {
		deep = &onnx.Graph{Nodes: []*onnx.Node{{Attributes: []onnx.Attribute{{Name: "g", Type: onnx.AttrGraph, G: deep}}}}}
	}
	attr := func(a onnx.Attribute) *onnx.Model {
		return &onnx.Model{Graph: &onnx.Graph{Nodes: []*onnx.Node{{Attributes: []onnx.Attribute{a}}}}}
	}
	for name, c := range map[string]struct {
		m    *onnx.Model
		want string
	}{
		"no graph":  {&onnx.Model{}, "no graph"},
		"depth":     {&onnx.Model{Graph: deep}, "deeper"},
		"no type":   {attr(onnx.Attribute{Name: "a"}), `"a" has type 0`},
		"no tensor": {attr(onnx.Attribute{Name: "a", Type: onnx.AttrTensor}), "no tensor"},
		"raw size":  {&onnx.Model{Graph: &onnx.Graph{Initializers: []*onnx.Tensor{{Name: "w", Type: onnx.Float, Dims: []int64{2}, Raw: make([]byte, 4)}}}}, `"w": 4 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := onnx.Encode(c.m); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// tensorModel wraps the hand-written body of a TensorProto into a model.
func tensorModel(body []byte) []byte {
	graph := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), body)
	return protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), graph)
}

func varint(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func packed(b []byte, num protowire.Number, vs ...uint64) []byte {
	var body []byte
	for _, v := range vs {
		body = protowire.AppendVarint(body, v)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), body)
}

func TestTypedData(t *testing.T) {
	minus := uint64(math.MaxUint64) // -1 as a varint
	floats := protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)))
	double := protowire.AppendFixed64(protowire.AppendTag(nil, 10, protowire.Fixed64Type), math.Float64bits(2))
	for name, c := range map[string]struct {
		typ  onnx.DataType
		n    uint64
		data []byte
		want []byte
	}{
		"float":    {onnx.Float, 1, floats, []byte{0, 0, 0xc0, 0x3f}},
		"double":   {onnx.Double, 1, double, []byte{0, 0, 0, 0, 0, 0, 0, 0x40}},
		"int64":    {onnx.Int64, 2, packed(nil, 7, minus, 2), []byte{255, 255, 255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 0, 0, 0}},
		"unpacked": {onnx.Int64, 1, varint(nil, 7, 3), []byte{3, 0, 0, 0, 0, 0, 0, 0}},
		"int32":    {onnx.Int32, 1, packed(nil, 5, minus), []byte{255, 255, 255, 255}},
		"float16":  {onnx.Float16, 1, packed(nil, 5, 0x3c00), []byte{0, 0x3c}},
		"int8":     {onnx.Int8, 2, packed(nil, 5, minus, 7), []byte{255, 7}},
		"int4":     {onnx.Int4, 3, packed(nil, 5, 0x21, 0x03), []byte{0x21, 0x03}},
		"empty":    {onnx.Float, 0, nil, []byte{}},
	} {
		t.Run(name, func(t *testing.T) {
			body := append(varint(varint(nil, 1, c.n), 2, uint64(c.typ)), c.data...)
			m, err := onnx.Decode(tensorModel(body))
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Graph.Initializers[0].Raw; string(got) != string(c.want) {
				t.Errorf("got % x, want % x", got, c.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	entry := func(b []byte, k, v string) []byte {
		kv := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), k)
		kv = protowire.AppendString(protowire.AppendTag(kv, 2, protowire.BytesType), v)
		return protowire.AppendBytes(protowire.AppendTag(b, 13, protowire.BytesType), kv)
	}
	external := func(k, v string) []byte {
		b := varint(varint(varint(nil, 1, 1), 2, uint64(onnx.Float)), 14, 1)
		return tensorModel(entry(entry(b, "location", "w"), k, v))
	}
	deep := []byte{}
	for range onnx.MaxDepth + 2 {
		attr := protowire.AppendBytes(varint(nil, 20, uint64(onnx.AttrGraph)), nil)[:3]
		attr = protowire.AppendBytes(protowire.AppendTag(attr, 6, protowire.BytesType), deep)
		node := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), attr)
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), node)
	}
	whole := mustEncode(t, sample())
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":         {nil, "no graph"},
		"cut":           {whole[:len(whole)-3], "byte "},
		"not protobuf":  {[]byte("<!doctype html>"), "byte 0"},
		"wrong type":    {varint(nil, 7, 1), "wire type"},
		"functions":     {protowire.AppendBytes(protowire.AppendTag(nil, 25, protowire.BytesType), nil), "functions"},
		"short raw":     {tensorModel(varint(varint(nil, 1, 2), 2, 1)), "0 bytes of data"},
		"negative dim":  {tensorModel(varint(varint(nil, 1, math.MaxUint64), 2, 1)), "dimension 0 is -1"},
		"huge shape":    {tensorModel(varint(varint(varint(nil, 1, 1<<40), 1, 1<<40), 2, 1)), "too large"},
		"unknown dtype": {tensorModel(varint(varint(nil, 1, 1), 2, 99)), "data type 99"},
		"wrong field":   {tensorModel(packed(varint(varint(nil, 1, 1), 2, 1), 7, 1)), "in field 7"},
		"deep":          {protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), deep), "deeper"},
		"offset":        {external("offset", "-1"), `offset is "-1"`},
		"up":            {external("location", "../secret"), "leaves"},
		"up inside":     {external("location", "a/../../b"), "leaves"},
		"absolute":      {external("location", "/etc/passwd"), "leaves"},
		"address":       {external("location", "*/_ORT_MEM_ADDR_/*"), "leaves"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := onnx.Decode(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := onnx.Decode(protowire.AppendBytes(protowire.AppendTag(nil, 25, protowire.BytesType), nil)); !errors.Is(err, onnx.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	b := mustEncode(t, &onnx.Model{Graph: &onnx.Graph{Name: "g"}})
	b = varint(b, 999, 5)
	b = protowire.AppendBytes(protowire.AppendTag(b, 1000, protowire.BytesType), []byte("later"))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1001, protowire.Fixed64Type), 1)
	m, err := onnx.Decode(b)
	if err != nil || m.Graph.Name != "g" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestDecodePublished(t *testing.T) {
	b := sharedFile(t, "models/mini-bert-embed/onnx/model.onnx")
	m, err := onnx.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Graph.Nodes) == 0 || len(m.Graph.Initializers) == 0 || m.Graph.Outputs[0].Name != "last_hidden_state" {
		t.Fatalf("got %d nodes, %d initializers, outputs %v", len(m.Graph.Nodes), len(m.Graph.Initializers), m.Graph.Outputs)
	}
	again, err := onnx.Decode(mustEncode(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, m) {
		t.Error("the model changed by encoding and decoding it")
	}
}

// sharedFile reads a file of the shared folder beside the repository.
func sharedFile(t testing.TB, name string) []byte {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "shared", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no shared folder: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzDecode(f *testing.F) {
	f.Add(mustEncode(f, sample()))
	f.Add(tensorModel(packed(varint(varint(nil, 1, 1), 2, uint64(onnx.Int64)), 7, 1)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := onnx.Decode(b)
		if err != nil {
			return
		}
		first, err := onnx.Encode(m)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		m2, err := onnx.Decode(first)
		if err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
		second, err := onnx.Encode(m2)
		if err != nil || string(first) != string(second) {
			t.Fatalf("encoding is not stable: %v", err)
		}
	})
}
