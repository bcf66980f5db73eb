// Command sizes checks the caps on source files and functions: 800 lines a
// file, 120 lines a function. Generated files and tests' functions count too.
package main
