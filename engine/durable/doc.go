// Package durable writes what must still be there after a loss of power.
package durable
