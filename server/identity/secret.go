package identity

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
	"strings"
)

const (
	secretMark   = "ath_"
	secretBytes  = 32                  // of randomness
	secretDigits = 43                  // base 62 digits that hold them
	maxSecret    = 256                 // longer ones are not even hashed
	shownPrefix  = len(secretMark) + 4 // characters that stay visible
	digits       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newSecret draws a secret: letters and digits only, so that a double click
// selects all of it.
func newSecret(random io.Reader) (string, error) {
	var b [secretBytes]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw a secret: %w", err)
	}
	n, base, digit := new(big.Int).SetBytes(b[:]), big.NewInt(int64(len(digits))), new(big.Int)
	var out [secretDigits]byte
	for i := len(out) - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return secretMark + string(out[:]), nil
}

// hash is what the store knows of a secret. A plain SHA-256 is enough for 256
// random bits: there is nothing to guess.
func hash(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// prefix is the part of a secret by which a person recognises it.
func prefix(secret string) string { return secret[:min(shownPrefix, len(secret))] }

// wellFormed spares the store what cannot be a key.
func wellFormed(secret string) bool {
	return len(secret) <= maxSecret && strings.HasPrefix(secret, secretMark)
}
