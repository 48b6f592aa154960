package idemhttp

// What can't be told apart over HTTP.
var (
	ParseKey      = parseKey
	CanonicalJSON = canonicalJSON
	Fingerprint   = (*Middleware).fingerprint
)
