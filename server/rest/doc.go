// Package rest is the HTTP face of the server: it turns a table of typed
// operations into routes and is the only importer of fiber.
//
// An [Op] is one operation. The table of them is the single registration:
// routing (under /v1 and /v2), authorisation, metric labels and the generated
// tests all read it. Most operations are a plain function
//
//	func(ctx context.Context, req *Req) (*Resp, error)
//
// and rest does the rest: it authenticates, checks the caller's roles, binds
// path, query and JSON body into Req, calls Validate where Req has it, and
// renders the response or the error. Streams get an [Events] besides.
//
// An operation that takes bytes gets a [Body] to read, one that gives bytes,
// redirects or sets headers returns a [Reply]; what a link signed by [Links] may
// do without a key has the access [Signed] in the table.
//
// What it promises for every response: an x-request-id header, errors as
// {"error":{message,type,param,code}}, 401 before anything else is looked at.
// A route that is not in the table is 404 unknown_url and a known path with
// another method is 405, both without looking at the key: the table is public.
//
// What it guards against, because fasthttp does not: bodies over the limit
// (with and without a length), a request smuggled in an unread body, a panic
// in a stream, a client that went away (its context is cancelled at once, on
// plain TCP and on TLS) or that stopped reading (a deadline per write).
// A client that closes only its sending side counts as gone.
//
// No fiber or fasthttp value leaves this package or outlives its handler.
package rest
