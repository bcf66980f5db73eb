// Package kit is what every service is handed: a clock, an id maker and a
// logger. Nothing that is stored or returned takes time or ids from elsewhere.
package kit
