package exec

import (
	"hash/fnv"
	"strings"

	"athanor/engine/compute"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
)

// The inputs that dropout works on: those of the linear modules.
const (
	siteAttention = "keep.attention" // read by q, k and v
	siteOutput    = "keep.output"
	siteMLP       = "keep.mlp" // read by gate and up
	siteDown      = "keep.down"
)

// dropoutSite is the input that a module reads.
func dropoutSite(module string) string {
	switch lastName(module) {
	case "o_proj":
		return siteOutput
	case "down_proj":
		return siteDown
	}
	if strings.HasPrefix(module, "mlp.") {
		return siteMLP
	}
	return siteAttention
}

// drops says whether a training pass over the batch uses dropout.
func (e *Executor) drops(b *data.Batch) bool { return b.Noise != 0 && e.dropout() > 0 }

// bindMasks draws the masks of a layer: one byte for each element of an input,
// 1 where it stays. They depend on the seed, the batch's number, the layer and
// the input alone, so that a layer that is computed again gets the same.
func (e *Executor) bindMasks(b *data.Batch, layer int, prefix string, to map[string]compute.Buffer) error {
	widths := map[string]int{}
	for _, l := range e.d.Linears() {
		if e.adapters[layerPrefix(layer)+l.Name] != nil {
			widths[dropoutSite(l.Name)] = l.In
		}
	}
	for site, width := range widths {
		mask, err := e.pool.get(prefix+site, tensor.U8, b.Rows*b.Length, width)
		if err != nil {
			return err
		}
		drawMask(mask.Bytes(), e.dropout(), maskKey(e.cfg.Seed, b.Noise, layer, site))
		to[prefix+site] = mask
	}
	return nil
}

func maskKey(seed, noise uint64, layer int, site string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(site))
	return mix(mix(mix(seed)^noise) ^ uint64(layer)<<32 ^ h.Sum64())
}

// drawMask fills a mask from a counter: four elements of 16 bits from each
// number.
func drawMask(mask []byte, drop float64, key uint64) {
	limit := uint64(drop * (1 << 16))
	for i := 0; i < len(mask); i += 4 {
		z := mix(key + uint64(i/4)*0x9e3779b97f4a7c15)
		for j := i; j < min(i+4, len(mask)); j++ {
			// 1 unless the 16 bits are below the limit, without a jump.
			mask[j] = byte(1 - (z&0xffff-limit)>>63)
			z >>= 16
		}
	}
}

// mix is the output function of SplitMix64: a bijection that scatters
// neighbours. (Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195.)
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
