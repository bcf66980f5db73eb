// Package endpoints shows where models are served. Every registered model has
// one serverless endpoint; dedicated ones do not exist yet.
package endpoints
