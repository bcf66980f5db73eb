package onnx

// Model is a ModelProto.
type Model struct {
	IRVersion int64
	Producer  string
	Opsets    []Opset
	Graph     *Graph
	Metadata  map[string]string
}

// Opset is one imported operator set; the default domain is "".
type Opset struct {
	Domain  string
	Version int64
}

// Domains and versions that Athanor's own graphs import.
const (
	DomainONNX      = ""
	DomainMicrosoft = "com.microsoft"
	OpsetONNX       = 21
	OpsetMicrosoft  = 1
	IRVersion       = 10
)

// Graph is a GraphProto; nodes are in topological order.
type Graph struct {
	Name         string
	Nodes        []*Node
	Initializers []*Tensor
	Inputs       []ValueInfo
	Outputs      []ValueInfo
	Values       []ValueInfo
}

// Node is a NodeProto. An empty input or output name is an omitted one.
type Node struct {
	Name       string
	OpType     string
	Domain     string
	Inputs     []string
	Outputs    []string
	Attributes []Attribute
}

// AttrType is the AttributeProto.AttributeType number.
type AttrType int32

// The attribute types that Athanor uses.
const (
	AttrFloat   AttrType = 1
	AttrInt     AttrType = 2
	AttrString  AttrType = 3
	AttrTensor  AttrType = 4
	AttrGraph   AttrType = 5
	AttrFloats  AttrType = 6
	AttrInts    AttrType = 7
	AttrStrings AttrType = 8
)

// Attribute is an AttributeProto; Type says which field holds the value.
type Attribute struct {
	Name    string
	Type    AttrType
	F       float32
	I       int64
	S       []byte
	T       *Tensor
	G       *Graph
	Floats  []float32
	Ints    []int64
	Strings [][]byte
}

// DataType is the TensorProto.DataType number.
type DataType int32

// The tensor data types that Athanor uses.
const (
	Float    DataType = 1
	Uint8    DataType = 2
	Int8     DataType = 3
	Uint16   DataType = 4
	Int16    DataType = 5
	Int32    DataType = 6
	Int64    DataType = 7
	String   DataType = 8
	BoolType DataType = 9
	Float16  DataType = 10
	Double   DataType = 11
	Uint32   DataType = 12
	Uint64   DataType = 13
	BFloat16 DataType = 16
	Uint4    DataType = 21
	Int4     DataType = 22
)

// Tensor is a TensorProto: its data is little-endian in Raw, or in a file.
type Tensor struct {
	Name     string
	Type     DataType
	Dims     []int64
	Raw      []byte
	External *External // nil when Raw holds the data
}

// External locates data in a file relative to the model's folder.
type External struct {
	Location       string
	Offset, Length int64 // bytes
}

// ValueInfo declares an input, output or intermediate tensor. Nil Dims leave
// even the rank open; empty Dims that are not nil declare a scalar.
type ValueInfo struct {
	Name string
	Type DataType
	Dims []Dim
}

// Dim is a fixed size, or a named symbol when Symbol is set, or unknown when
// Size is negative.
type Dim struct {
	Size   int64
	Symbol string
}
