package idem

import (
	"context"
	"fmt"
)

// Close ends the store's part of attempts: those that are still held count as lost
// (ErrClosed) and are not renewed any more, so that their claims lapse; and it waits
// for the store's goroutines. Begin is refused from then on; everything else goes on
// working. When ctx ends first its error comes back, and Close can be called again.
//
// A store that holds no attempts has no goroutines and no connections of its own, and
// need not be closed.
func (s *Store) Close(ctx context.Context) error {
	s.beat.close()
	done := make(chan struct{})
	go func() { // ends with those that it waits for
		s.beat.background.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w", ctx.Err())
	}
}
