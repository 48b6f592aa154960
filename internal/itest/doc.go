// Package itest runs Gatepost against a real container, through testcontainers-go. It is
// a module of its own, so that nobody who imports Gatepost gets testcontainers' versions.
//
//	cd internal/itest && go test ./...
//
// It needs a Docker engine and fails without one. The image is the one in
// GATEPOST_PG_IMAGE, or pgtemp.DefaultImage.
package itest
