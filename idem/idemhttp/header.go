package idemhttp

import (
	"net/http"
	"slices"
	"strings"
)

// replayedHeader tells a client that the reply is an earlier request's.
const replayedHeader = "Idempotent-Replayed"

// storedHeaders describe the reply's body or where its resource is; they are true
// again at a replay. Others belong to one connection, one caller or one moment.
var storedHeaders = []string{
	"Content-Type", "Content-Language", "Content-Disposition", "Content-Encoding",
	"Location", "Link", "Etag", "Last-Modified",
}

// neverStored can't be added: credentials, what is of one moment, what is of one
// connection, and what is computed anew.
var neverStored = []string{
	"Set-Cookie", "Set-Cookie2", "Cookie", "Authorization", "Www-Authenticate", "Authentication-Info",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info", "Proxy-Connection",
	"Date", "Age", "Cache-Control", "Retry-After", "Clear-Site-Data",
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", keyHeader, replayedHeader,
}

// corsPrefix begins the headers of CORS, which depend on the asking origin.
const corsPrefix = "Access-Control-"

func storable(name string) bool {
	return !slices.Contains(neverStored, name) && !strings.HasPrefix(name, corsPrefix) && !strings.HasPrefix(name, http.TrailerPrefix)
}

// kept is what of a reply's headers is stored: the allowed ones that the handler set,
// which those equal to before are not, nor those that Connection names.
func kept(allowed []string, before, after http.Header) http.Header {
	stored := http.Header{}
	for _, name := range allowed {
		values, ok := after[name]
		was, outer := before[name]
		if ok && (!outer || !slices.Equal(values, was)) && !hopByHop(after, name) {
			stored[name] = slices.Clone(values)
		}
	}
	return stored
}

func hopByHop(h http.Header, name string) bool {
	for _, line := range h["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(option), name) {
				return true
			}
		}
	}
	return false
}
