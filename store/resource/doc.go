// Package resource defines the records of the appliance: what they are, which
// names they may bear, and the small questions they answer about themselves.
//
// Records are plain values. They are stored as JSON by package store and turned
// into wire types by the slices of the server; neither is known here. Nothing here
// makes an id or reads a clock: both are given.
//
// # Words
//
//   - An organisation owns the appliance; there is one per data directory.
//   - A project separates models, keys and usage inside the organisation.
//   - A user is a person of the organisation; a membership puts one in a project.
//   - An API key acts in one project, with a role there and one in the organisation.
//   - A model is imported weights with everything needed to serve them.
//   - A file is bytes that a user uploaded, with what is known of them; an upload
//     is one that comes in parts.
//   - A job is an entry of the durable queue.
//   - A fine-tune is a training job as its owner sees it, with events and metrics;
//     a lineage says what the model that came of it was made of.
//
// States and what may follow them are tables beside the records; testdata/states.md
// draws them.
//
// # Invariants
//
//   - Ids are typed strings, so that one kind can't be passed for another.
//   - JSON names of stored fields never change their meaning; a change is a
//     migration in package store.
//   - The package imports the standard library only.
package resource
