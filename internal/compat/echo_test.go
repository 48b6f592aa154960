package compat_test

import (
	"net/http"
	"testing"

	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/labstack/echo/v4"
)

// echoOnce is the middleware for echo. echo's handlers return an error for somebody
// further out to answer; the answer must be there before the transaction commits.
func echoOnce(m *idemhttp.Middleware) echo.MiddlewareFunc {
	wrap := echo.WrapMiddleware(m.Handler)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return wrap(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
	}
}

func TestEcho_RunsARouteOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	e := echo.New()
	e.POST("/orders/:sku", func(c echo.Context) error {
		if c.Param("sku") == "refused" { // the way that echo does it
			s.effect(c.Request(), "refused")
			return echo.NewHTTPError(http.StatusUnprocessableEntity, "refused")
		}
		s.answer(c.Response(), c.Request(), c.Param("sku"))
		return nil
	}, echoOnce(s.once(t)))
	s.check(t, e, "/orders/")
}
