package nn_test

import (
	"math"
	"testing"

	"athanor/engine/nn"
)

func TestFrequencies(t *testing.T) {
	llama3 := nn.RopeScaling{Kind: nn.Llama3Scaling, Factor: 8, Low: 1, High: 4, Original: 8192}
	cases := []struct {
		name string
		rope nn.Rope
		want []float64
	}{
		// theta^(-2i/D): 100^0, 100^-1/2.
		{"plain", nn.Rope{Theta: 100, Dim: 4}, []float64{1, 0.1}},
		{"linear", nn.Rope{Theta: 100, Dim: 4, Scaling: nn.RopeScaling{Kind: nn.LinearScaling, Factor: 4}}, []float64{0.25, 0.025}},
		// Frequencies 1, 1e-2, 1e-3, ... with theta 1e6 and D 12. Turns within 8192
		// positions: 8192/(2 pi) = 1303.797 times the frequency: 1303.8, 130.4, 13.04
		// (kept, above 4), 1.30379729 (blended with 0.30379729/3 = 0.10126576),
		// 0.13 and 0.013 (divided by 8).
		{"llama3", nn.Rope{Theta: 1e6, Dim: 12, Scaling: llama3}, []float64{
			1, 0.1, 0.01, 0.10126576*1e-3 + 0.89873424*1e-3/8, 1e-4 / 8, 1e-5 / 8}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := c.rope.Frequencies()
			if len(got) != len(c.want) {
				t.Fatalf("%d frequencies, want %d", len(got), len(c.want))
			}
			for i := range got {
				if math.Abs(got[i]-c.want[i]) > 1e-7*c.want[i] {
					t.Errorf("frequency %d is %.9g, want %.9g", i, got[i], c.want[i])
				}
			}
		})
	}
}

// TestLlama32 compares with values computed from the published parameters of
// Llama 3.2 1B (theta 5e5, D 64, factor 32) with pencil and logarithms.
func TestLlama32(t *testing.T) {
	r := nn.Rope{Theta: 5e5, Dim: 64, Scaling: nn.RopeScaling{Kind: nn.Llama3Scaling, Factor: 32, Low: 1, High: 4, Original: 8192}}
	f := r.Frequencies()
	// Pair 16: 5e5^-0.5 = 1.41421356e-3, 1.8438 turns: blend (0.8438...)/3.
	turns := 8192 * 1.4142135623730951e-3 / (2 * math.Pi)
	blend := (turns - 1) / 3
	for i, want := range map[int]float64{
		0: 1, 8: 0.037606030930863945, 16: 1.4142135623730951e-3 * (blend + (1-blend)/32), 24: 5.3182958969449885e-05 / 32,
	} {
		if math.Abs(f[i]-want) > 1e-12 {
			t.Errorf("frequency %d is %.15g, want %.15g", i, f[i], want)
		}
	}
}

func TestRow(t *testing.T) {
	r := nn.Rope{Theta: 100, Dim: 4}
	cos, sin := make([]float32, 2), make([]float32, 2)
	r.Row(r.Frequencies(), 0, cos, sin)
	if cos[0] != 1 || cos[1] != 1 || sin[0] != 0 || sin[1] != 0 {
		t.Errorf("position 0: cos %v, sin %v", cos, sin)
	}
	r.Row(r.Frequencies(), 30, cos, sin) // angles 30 and 3
	for i, want := range []float64{0.15425144988758405, -0.9899924966004454} {
		if math.Abs(float64(cos[i])-want) > 6e-8 {
			t.Errorf("cos of pair %d is %v, want %v", i, cos[i], want)
		}
	}
	for i, want := range []float64{-0.9880316240928618, 0.1411200080598672} {
		if math.Abs(float64(sin[i])-want) > 6e-8 {
			t.Errorf("sin of pair %d is %v, want %v", i, sin[i], want)
		}
	}
	// Far out the angle is still exact: 10^6 * 0.1 radians.
	r.Row(r.Frequencies(), 1_000_000, cos, sin)
	if want := math.Cos(1e5); math.Abs(float64(cos[1])-want) > 1e-7 {
		t.Errorf("cos at a million is %v, want %v", cos[1], want)
	}
}
