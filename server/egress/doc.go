// Package egress is the only way out of the machine for what the server does by
// itself or on a user's request: model downloads and uploads, experiment trackers,
// pictures by URL. A [Gate] lets a connection through only when the owner of the
// machine has listed its host.
//
// # Words
//
//   - An entry is one line of the owner's list: a name (hub.example), a name with
//     everything below it (*.hub.example), or an address (10.0.0.7, [fd00::7]), each
//     with ":port" or for every port. "+private" behind an entry lets its name lead
//     to an address of a private network.
//   - A public address is one that is reachable over the internet: not loopback,
//     private, link-local, shared, documentation, multicast or a translation of IPv4.
//
// # Invariants
//
//   - An empty list lets nothing out.
//   - The address that was checked is the address that is dialled: a name is looked
//     up once per connection, so an answer that changes in between is of no use.
//   - A redirect is a new request and passes the same checks.
//   - Proxies of the environment are not used.
//   - Every attempt is logged, with its host and for whom; never paths or headers,
//     which may hold secrets.
//
// # What it must not do
//
// It knows no user, no setting but its list, and no protocol above HTTP.
package egress
