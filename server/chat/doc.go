// Package chat serves chat and text completions: it checks a request, finds
// the model, and turns the engine's events into the API's shapes.
package chat
