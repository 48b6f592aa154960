package compat_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
)

func TestChi_RunsARouteOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := chi.NewRouter()
	// Behind the router: the route's pattern is known, and a handler can be run again.
	r.Route("/shop", func(r chi.Router) {
		r.With(s.once(t).Handler).Post("/orders/{sku}", func(w http.ResponseWriter, r *http.Request) {
			s.answer(w, r, chi.URLParam(r, "sku"))
		})
	})
	s.check(t, r, "/shop/orders/")
}
