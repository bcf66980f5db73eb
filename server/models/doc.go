// Package models is the registry of models as the API shows it: list, get, and
// finding the record behind a name. Importing lives with the composition root,
// which knows the engine.
package models
