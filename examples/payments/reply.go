package main

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/gatepost/gatepost/idem"
)

// jsonReply is a reply with v, which can be encoded, as its body.
func jsonReply(status int, v any) idem.Reply {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of numbers and strings
	}
	return idem.Reply{
		Status: status,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   append(body, '\n'),
	}
}

// send answers.
func send(w http.ResponseWriter, reply idem.Reply) {
	maps.Copy(w.Header(), reply.Header)
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body) // a client that is gone asks again
}

// problem answers with an error of the service's own (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	reply := jsonReply(status, map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
	reply.Header.Set("Content-Type", "application/problem+json")
	send(w, reply)
}
