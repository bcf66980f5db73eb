package jinja

import (
	"cmp"
	"math"
	"math/big"
)

// normInt is the Value of an integer of any size, within bounds.
func normInt(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	if n.BitLen() > maxBits {
		panic(&LimitError{What: "bits in an integer", Limit: maxBits})
	}
	return n
}

// isNumber says whether v is an int, bool or float.
func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// toBig is the integer v, which is an int or bool.
func toBig(v Value) *big.Int {
	if b, ok := v.(*big.Int); ok {
		return b
	}
	n, _ := index(v)
	return big.NewInt(n)
}

// toFloat is float(v) of a number.
func toFloat(v Value) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			panic(newErr("OverflowError", "int too large to convert to float"))
		}
		return f
	}
	n, _ := index(v)
	return float64(n)
}

// arith is l op r of two numbers.
func arith(op string, l, r Value) Value {
	_, lf := l.(float64)
	_, rf := r.(float64)
	if lf || rf || op == "/" {
		return arithFloat(op, toFloat(l), toFloat(r))
	}
	if a, ok := l.(int64); ok {
		if b, ok := r.(int64); ok {
			if v, ok := arithSmall(op, a, b); ok {
				return v
			}
		}
	}
	return arithBig(op, toBig(l), toBig(r))
}

// arithSmall does what can't overflow.
func arithSmall(op string, a, b int64) (Value, bool) {
	switch op {
	case "+":
		c := a + b
		return c, (c > a) == (b > 0)
	case "-":
		c := a - b
		return c, (c < a) == (b > 0)
	case "*":
		const half = 1 << 31
		return a * b, a > -half && a < half && b > -half && b < half
	case "%", "//":
		if b == 0 || b == -1 {
			return nil, false
		}
		q, m := a/b, a%b
		if m != 0 && (m < 0) != (b < 0) {
			q, m = q-1, m+b
		}
		if op == "%" {
			return m, true
		}
		return q, true
	}
	return nil, false
}

func zeroDivision() *RuntimeError { return newErr("ZeroDivisionError", "division by zero") }

func arithBig(op string, a, b *big.Int) Value {
	z := new(big.Int)
	switch op {
	case "+":
		return normInt(z.Add(a, b))
	case "-":
		return normInt(z.Sub(a, b))
	case "*":
		return normInt(z.Mul(a, b))
	case "%", "//":
		if b.Sign() == 0 {
			panic(zeroDivision())
		}
		m := new(big.Int)
		z.QuoRem(a, b, m)
		if m.Sign() != 0 && (m.Sign() < 0) != (b.Sign() < 0) {
			z.Sub(z, big.NewInt(1))
			m.Add(m, b)
		}
		if op == "%" {
			return normInt(m)
		}
		return normInt(z)
	}
	return powBig(a, b)
}

func powBig(a, b *big.Int) Value {
	if b.Sign() < 0 {
		return arithFloat("**", toFloat(normInt(a)), toFloat(normInt(b)))
	}
	if a.BitLen() <= 1 { // -1, 0, 1
		switch {
		case b.Sign() == 0:
			return int64(1)
		case a.Sign() < 0 && b.Bit(0) == 0:
			return int64(1)
		}
		return normInt(a)
	}
	if !b.IsInt64() || b.Int64() > maxBits || int64(a.BitLen())*b.Int64() > 2*maxBits {
		panic(&LimitError{What: "bits in an integer", Limit: maxBits})
	}
	return normInt(new(big.Int).Exp(a, b, nil))
}

func arithFloat(op string, a, b float64) Value {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		if a == 0 && b < 0 {
			panic(newErr("ZeroDivisionError", "0.0 cannot be raised to a negative power"))
		}
		c := math.Pow(a, b)
		switch {
		case math.IsNaN(c) && !math.IsNaN(a) && !math.IsNaN(b):
			panic(valueErr("complex numbers are not supported"))
		case math.IsInf(c, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0):
			panic(newErr("OverflowError", "float result out of range"))
		}
		return c
	}
	if b == 0 {
		panic(zeroDivision())
	}
	if op == "/" {
		return a / b
	}
	m := math.Mod(a, b)
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	if op == "%" {
		return m
	}
	return math.Floor((a - m) / b)
}

// negate is -v or +v.
func negate(op string, v Value) Value {
	switch v := v.(type) {
	case *Undefined:
		panic(v.err())
	case float64:
		if op == "-" {
			return -v
		}
		return v
	case bool, int64, *big.Int:
		if op == "-" {
			return normInt(new(big.Int).Neg(toBig(v)))
		}
		return normInt(toBig(v))
	}
	panic(typeErr("bad operand type for unary %s: '%s'", op, typeName(v)))
}

// compareNumbers orders two numbers exactly; ok is false where one is NaN.
func compareNumbers(l, r Value) (c int, ok bool) {
	if a, ok := l.(int64); ok {
		if b, ok := r.(int64); ok {
			return cmp.Compare(a, b), true
		}
	}
	x, y := exact(l), exact(r)
	if x == nil || y == nil {
		return 0, false
	}
	return x.Cmp(y), true
}

// exact is a number without rounding, nil for NaN.
func exact(v Value) *big.Float {
	if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return nil
		}
		return big.NewFloat(f)
	}
	return new(big.Float).SetInt(toBig(v))
}
