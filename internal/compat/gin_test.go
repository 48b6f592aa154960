package compat_test

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gin-gonic/gin"
)

// The simplest way with gin: the route is a net/http handler behind gin's middleware.
func TestGin_RunsAWrappedHandlerOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	g := ginEngine()
	for _, sku := range []string{"book", "refused", "busy"} { // gin's parameters don't reach net/http
		g.POST("/orders/"+sku, gin.WrapH(s.once(t).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.answer(w, r, sku)
		}))))
	}
	s.check(t, g, "/orders/")
}

func TestGin_RunsItsOwnHandlersOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	g := ginEngine()
	once := s.once(t, func(cfg *idemhttp.Config) { cfg.SingleRun = true }) // Next goes on only once
	g.POST("/orders/:sku", ginOnce(once), func(c *gin.Context) {
		s.answer(c.Writer, c.Request, c.Param("sku"))
	})
	s.check(t, g, "/orders/")
}

var quiet = sync.OnceFunc(func() { gin.SetMode(gin.ReleaseMode) })

func ginEngine() *gin.Engine {
	quiet()
	return gin.New()
}

// ginOnce is the middleware for gin's own handlers.
func ginOnce(m *idemhttp.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, request := c.Writer, c.Request
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.Writer, c.Request = &ginWriter{ResponseWriter: outer, inner: w, size: -1}, r
			c.Next()
			c.Writer.WriteHeaderNow()
		})).ServeHTTP(outer, request)
		c.Writer, c.Request = outer, request
		c.Abort() // what follows has been run, or must not be
	}
}

// ginWriter is a gin.ResponseWriter over the middleware's. It overrides all that would
// write to gin's own.
type ginWriter struct {
	gin.ResponseWriter
	inner  http.ResponseWriter
	status int
	size   int // -1: nothing is written
}

func (w *ginWriter) Unwrap() http.ResponseWriter { return w.inner }
func (w *ginWriter) Header() http.Header         { return w.inner.Header() }
func (w *ginWriter) WriteHeader(status int)      { w.status = status }
func (w *ginWriter) Size() int                   { return w.size }
func (w *ginWriter) Written() bool               { return w.size != -1 }

func (w *ginWriter) Status() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

func (w *ginWriter) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.inner.WriteHeader(w.Status())
	}
}

func (w *ginWriter) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.inner.Write(p)
	w.size += n
	return n, err
}

func (w *ginWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Flush does nothing: nothing leaves before COMMIT.
func (w *ginWriter) Flush() {}

func (w *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.inner).Hijack()
}
