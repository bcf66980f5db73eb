// Package jinja is an interpreter of the part of Jinja2 that chat templates
// use, with the results that Hugging Face transformers get from Jinja2 3.1 in
// its immutable sandbox (trim_blocks, lstrip_blocks, loop controls, the
// generation tag, tojson without ASCII escapes, raise_exception and
// strftime_now).
//
// Reference: the Jinja template designer documentation, the Python 3 data
// model for str, repr, comparison and slicing, and transformers'
// chat_template_utils for the environment.
//
// # Words
//
//   - Value: what an expression yields; the Go types are listed at [Value].
//   - Str: a Python str that knows which of its bytes came from the template
//     (trusted) and which from the data (untrusted). Every operation keeps it.
//   - soft error: an error that the template can only meet when it runs.
//   - budget: what one rendering may spend: steps, bytes, output, depth.
//
// # Invariants
//
//   - A Template never changes after Parse; any number of goroutines may
//     render it at once. Data values are never changed either: the sandbox
//     refuses list.append and its like, so callers may share them.
//   - Untrusted text stays untrusted whatever the template does with it.
//   - Templates are hostile until shown otherwise. Source size, nesting, steps,
//     bytes made, output and macro depth are bounded; a rendering that goes
//     over ends with a *LimitError.
//   - Parse and Render return errors. Inside, a failing operation panics with
//     *RuntimeError, *TemplateError or *LimitError, and Render is the only
//     place that recovers them (the shape of text/template).
package jinja
