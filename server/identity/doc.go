// Package identity knows who may use the appliance: the organisation, its
// projects and its API keys. It answers GET /whoami, GET /projects and the
// /api-keys operations, and authenticates every request.
//
// # Words
//
//   - A secret is what a client sends: "ath_" and 256 random bits. It is shown
//     once, when it is made; the store has its SHA-256 and its first characters.
//   - A key is the record about a secret: a name, a project, two roles, perhaps
//     an expiry. It acts with the roles it carries, not with those of a person.
//   - The owner is the person that the first start makes; who works on the
//     appliance's own machine acts as the owner.
//
// # Rules
//
//   - A key sees and manages keys of its own project only; a key of another
//     project is 403, an unknown or revoked one 404.
//   - An admin of the organisation and an admin or editor of the project manage
//     all keys of the project, a developer without a role there only those of
//     the same person.
//   - A new key has the roles of the key that made it, and a secret is never
//     renewed for someone with fewer rights than the key has: nobody gains rights.
//   - A revoked key stays in the store as a record, so that what it did keeps a
//     name.
//   - A change of a key holds for every request that begins after the change was
//     answered.
package identity
