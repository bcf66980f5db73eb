package refexec

import "maps"

// kernels by operator; those of other domains carry the domain in front.
var kernels = map[string]kernel{
	"Cast": cast, "Where": where, "Range": rangeOf,
	"Reshape": reshape, "Transpose": transpose, "Concat": concat, "Split": split, "Slice": slice,
	"Shape": shapeOf, "Unsqueeze": unsqueeze, "Squeeze": squeeze, "Expand": expand,
	"Gather": gather, "GatherND": gatherND, "Identity": identity, "Constant": constant,
	"GatherElements": gatherElements, "ScatterElements": scatterElements, "ScatterND": scatterND,
	"ConstantOfShape": constantOfShape,
	"MatMul":          matMul, "Gemm": gemm, "com.microsoft::FusedMatMul": matMul,
	"Softmax": softmax, "ReduceMean": reduceMean, "ReduceSum": reduceSum, "ReduceMax": reduceMax,
	// ONNX Runtime registers this contributed operator in the standard domain.
	"SimplifiedLayerNormalization":                    rmsNorm,
	"LayerNormalization":                              layerNorm,
	"com.microsoft::SkipSimplifiedLayerNormalization": skipRMSNorm,
	"com.microsoft::QuickGelu":                        quickGelu,
	"com.microsoft::GroupQueryAttention":              groupQueryAttention,
	"com.microsoft::MatMulNBits":                      matMulNBits,
	"com.microsoft::GatherBlockQuantized":             gatherBlockQuantized,
	"DequantizeLinear":                                dequantizeLinear,
}

func init() {
	for name, op := range unaryOps {
		kernels[name] = unary(op)
	}
	for name, op := range binaryOps {
		kernels[name] = arithmetic(op)
	}
	for name, op := range compareOps {
		kernels[name] = compare(op)
	}
}

// Operators lists the names of all known operators.
func Operators() []string {
	var names []string
	for name := range maps.Keys(kernels) {
		names = append(names, name)
	}
	return names
}
