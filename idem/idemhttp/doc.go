// Package idemhttp is a net/http middleware that runs a handler once an
// Idempotency-Key, as the IETF's draft asks for it
// (draft-ietf-httpapi-idempotency-key-header-07): a client that sent a request and got
// no answer sends it again, and gets the answer of the first one.
//
// # What is not promised
//
// Once is what the handler writes in idem.Tx(r.Context()), the transaction that its
// reply is stored in. What it writes over another connection, or does elsewhere, stays
// when the transaction is rolled back, and is done again by the next try; the
// middleware itself runs the handler again when its transaction met another one
// (SQLSTATE 40001 and 40P01). See Streaming for handlers whose effects are elsewhere, and
// Read for those that first have to find out there what an earlier request did.
//
// A key is kept as long as idem.Config.Retention says, 24 hours by default. Say so in
// the API's documentation; a client that retries later is a new one.
//
// Replies go out after COMMIT, so they are buffered whole. The body of a reply over
// idem.Config.MaxBody reaches the first client and no other. Flush and Hijack are
// http.ErrNotSupported, except in a route that declares Streaming.
//
// # Where it stands
//
// Behind authentication and authorisation, so that Scope knows who asks and a refused
// request claims nothing; behind CORS, logging, compression and whatever else is of one
// connection; and before the handler. Nothing may read the body before it. OPTIONS, and
// so CORS preflights, pass. A cache between client and service doesn't store replies to
// POST and PATCH by itself; a replay says Cache-Control: no-store. Vary is not stored:
// it is of the middleware that negotiates, which runs at a replay too.
//
// A handler that is given an error and returns it to its framework, as echo's do, must
// have written the answer before the middleware sees the end of it.
//
// # What a client is answered
//
//	the key is missing (Required) or malformed        400
//	the key came before with another request          422, without anything of it
//	the first request is running                      409, Retry-After 1 to 30
//	the request's body is over MaxRequest             413, before any claim
//	it was done, and the reply was too large to keep  409, Idempotent-Replayed: true
//	the database is down, a COMMIT's outcome can't    503, Retry-After; nothing is stored
//	be found out, retries are spent
//	it was done                                       its status, body and headers,
//	                                                  Idempotent-Replayed: true
//
// Errors are application/problem+json (RFC 9457); their types are the constants here.
//
// # What is stored
//
//	2xx, 3xx                        writes kept, reply stored
//	4xx                             writes undone (see KeepWrites), reply stored
//	401, 403, 408, 421, 425, 429    writes undone, not stored: they are of the moment
//	5xx                             writes undone, not stored
//	a panic, or the client is gone  writes undone, not stored; a panic goes on
//
// What is not stored reaches its client all the same, and the key is free. Of the
// headers, those are stored that describe the body or its resource: see Config. Trailers
// and informational (1xx) replies are not stored; the latter are left out.
//
// # A request is the same
//
// when its method, route pattern, path, query (without the order of names), media type,
// Content-Encoding and body are: each byte, or with CanonicalJSON what they say. Other
// headers don't count, nor does If-Match: a new precondition is a new request, and gets
// a new key.
package idemhttp
