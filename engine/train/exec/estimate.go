package exec

import (
	"strconv"
	"strings"

	"athanor/engine/graph"
)

// What a process has beside the tensors, and what the runtime keeps beyond what
// is alive: its memory for packing, and holes between blocks of other sizes.
const (
	processBytes = 224 << 20
	slack        = 1.3
)

// way is how all batches are computed.
type way struct {
	whole bool // in one program
	keep  int  // or the last layers, whose products are kept; the others are computed again
}

// Choose settles how all batches from now on are computed, for batches of at
// most rows x length and so many bytes at the peak, 0 being no bound: the
// fastest way that fits, or else the smallest. Before it is called there is no
// bound.
//
// One way for all sizes keeps two promises. Gradients of the output projection
// are added up in other pieces as a whole than layer by layer, so that a choice
// for each batch would make results depend on the memory; how many layers are
// kept changes no byte. And buffers stay at their largest size, so that batches
// of many sizes, each with layers of its own, would take more than any of them.
func (e *Executor) Choose(rows, length int, bytes int64) {
	e.way = e.choose(rows, length, bytes)
	e.info.Whole = e.way.whole
}

func (e *Executor) choose(rows, length int, bytes int64) way {
	if e.mayBeWhole() && (bytes == 0 || e.estimate(rows, length, true) <= bytes) {
		return way{whole: true}
	}
	switch {
	case e.cfg.Recompute:
		return way{}
	case bytes == 0:
		return way{keep: e.d.Layers}
	}
	left := bytes - e.estimate(rows, length, false)
	return way{keep: int(min(max(left/max(e.keptBytes(rows, length), 1), 0), int64(e.d.Layers)))}
}

func (e *Executor) mayBeWhole() bool { return !e.cfg.Layered && !e.cfg.Recompute }

// Least is what Estimate gives for the smallest way that Choose can take.
func (e *Executor) Least(rows, length int) int64 {
	least := e.estimate(rows, length, false)
	if e.mayBeWhole() { // which is smaller for small models
		least = min(least, e.estimate(rows, length, true))
	}
	return least
}

// keptBytes is what the largest layer hands on to its backward run.
func (e *Executor) keptBytes(rows, length int) int64 {
	sizes, most := map[string]int{"B": rows, "S": length}, int64(0)
	seen := map[string]bool{}
	for i := range e.d.Layers {
		key := e.signature(i)
		if seen[key] {
			continue
		}
		seen[key] = true
		sum := int64(0)
		for _, k := range e.keptOf(i, key) {
			sum += 4 * sizeOfDims(k.shape...).times(sizes)
		}
		most = max(most, sum)
	}
	return most
}

// keptOf lists what a layer would hand on, without compiling it.
func (e *Executor) keptOf(layer int, key string) []kept {
	if list, ok := e.handed[key]; ok {
		return list
	}
	var nodes []graph.Node
	n := 0
	model, err := graph.Build(func(g *graph.Graph) {
		n = e.buildLayer(g, layer, layerBack, e.dropout() > 0)
		nodes = g.Nodes()
	})
	var list []kept
	if err == nil { // otherwise the program says why when it is needed
		_, _, list = divide(model, nodes, n)
	}
	e.handed[key] = list
	return list
}

// Estimate is the memory in bytes that passes over batches of rows x length
// take at their peak: weights, gradients, activations and what a process has
// anyway, but not what an optimiser keeps. It is meant to be an upper bound.
// Weights in a mapped file count, although the system can take their pages away.
func (e *Executor) Estimate(rows, length int) int64 {
	n := e.estimate(rows, length, e.way.whole)
	if e.way.keep > 0 {
		n += int64(e.way.keep) * e.keptBytes(rows, length)
	}
	return n
}

func (e *Executor) estimate(rows, length int, whole bool) int64 {
	tokens := rows * length
	total := int64(processBytes)
	for _, s := range e.base {
		if !e.full() { // otherwise they are the values of params
			total += s.bytes()
		}
	}
	largest := 0 // of what is added up outside of the programs
	for _, p := range e.params {
		total += 4 * 2 * int64(elements(p.Shape))
		if !whole {
			largest = max(largest, elements(p.Shape))
		} else {
			largest += elements(p.Shape)
		}
	}
	total += 4 * int64(largest)
	if !whole && e.full() { // one buffer for each part of a layer
		for i := range min(1, e.d.Layers) {
			for _, key := range e.keys[i] {
				total += 4 * int64(elements(e.params[e.byName[key]].Shape))
			}
		}
	}
	sizes := map[string]int{"B": rows, "S": length, "C": min(e.chunk(), tokens)}
	row := 4 * int64(tokens) * int64(e.d.Hidden)
	total += 4*int64(rows)*int64(length)*int64(length+e.d.HeadDim) + 4*row // mask, angles, x, dx, rows of the head
	dropout := e.dropout() > 0
	masks := int64(0)
	if dropout {
		for _, l := range e.d.Linears() {
			masks += int64(tokens) * int64(l.In)
		}
	}
	if whole {
		sizes["C"] = tokens
		return total + masks*int64(e.d.Layers) + slackOf(e.live("whole", func(g *graph.Graph) { e.buildWhole(g, dropout) }).peak(sizes))
	}
	total += masks + int64(e.d.Layers)*row
	kind := headInput
	if e.full() {
		kind = headAll
	}
	peak := e.live("head", func(g *graph.Graph) { e.buildHead(g, kind) }).peak(sizes)
	for i := range e.d.Layers {
		key := "layer " + e.signature(i)
		peak = max(peak, e.live(key, func(g *graph.Graph) { e.buildLayer(g, i, layerBack, dropout) }).peak(sizes))
	}
	return total + slackOf(peak)
}

func slackOf(n int64) int64 { return int64(slack * float64(n)) }

// lives is when the values of a graph come and go.
type lives struct {
	sizes []size // of each value
	made  []int  // node that makes it
	last  []int  // last node that reads it
	nodes int
}

// size is a number times symbols.
type size struct {
	n       int64
	symbols []string
}

// times gives the symbols their values.
func (s size) times(of map[string]int) int64 {
	n := s.n
	for _, name := range s.symbols {
		n *= int64(of[name])
	}
	return n
}

// live analyses a graph once. A graph that cannot be built has no values; the
// program says why when it is needed.
func (e *Executor) live(key string, build func(g *graph.Graph)) *lives {
	if l := e.lives[key]; l != nil {
		return l
	}
	l := &lives{}
	_, err := graph.Build(func(g *graph.Graph) {
		build(g)
		l = newLives(g.Nodes())
	})
	if err != nil {
		l = &lives{}
	}
	e.lives[key] = l
	return l
}

// newLives follows the values in the order of the nodes. A reshaped value is
// the same memory; outputs of the graph are counted too, which covers the
// buffers that they are written to.
func newLives(nodes []graph.Node) *lives {
	l := &lives{nodes: len(nodes)}
	at := map[*graph.Value]int{} // index of its memory
	for i, n := range nodes {
		for _, v := range n.Inputs {
			if k, ok := at[v]; ok {
				l.last[k] = i
			}
		}
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			if k, ok := at[n.Inputs[0]]; ok && sameMemory(n.Op) {
				at[v] = k
				continue
			}
			at[v] = len(l.sizes)
			l.sizes = append(l.sizes, sizeOf(v))
			l.made, l.last = append(l.made, i), append(l.last, i)
		}
	}
	return l
}

func sameMemory(op string) bool {
	switch op {
	case "Reshape", "Unsqueeze", "Squeeze", "Identity":
		return true
	}
	return false
}

func sizeOf(v *graph.Value) size {
	s := sizeOfDims(v.Shape()...)
	s.n *= int64(max(v.DType().Size(), 1))
	return s
}

func sizeOfDims(shape ...graph.Dim) size {
	s := size{n: 1}
	for _, d := range shape {
		if n, ok := d.Size(); ok {
			s.n *= int64(n)
			continue
		}
		for _, f := range strings.Split(d.String(), "*") {
			if n, err := strconv.Atoi(f); err == nil {
				s.n *= int64(n)
			} else {
				s.symbols = append(s.symbols, f)
			}
		}
	}
	return s
}

// peak is the most that is alive at once.
func (l *lives) peak(of map[string]int) int64 {
	change := make([]int64, l.nodes+1)
	for i, s := range l.sizes {
		n := s.times(of)
		change[l.made[i]] += n
		change[l.last[i]+1] -= n
	}
	now, most := int64(0), int64(0)
	for _, c := range change {
		now += c
		most = max(most, now)
	}
	return most
}
