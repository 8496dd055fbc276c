package locco

import (
	"sync"
	"sync/atomic"
	"time"
)

// pauseNoise is how far the wall clock may run ahead of the monotonic one
// without being taken for a pause.
const pauseNoise = 20 * time.Millisecond

// holderClock is the default clock of a holder: monotonic time plus every pause
// that only the wall clock saw. CLOCK_MONOTONIC stands still while a machine is
// suspended or a virtual machine paused; the backend's clock does not.
type holderClock struct {
	read func() (mono, wall time.Duration)

	ahead  atomic.Int64 // wall minus monotonic when last settled
	paused atomic.Int64 // sum of all pauses

	mu sync.Mutex // settle runs one at a time
}

func newHolderClock() *holderClock {
	base := time.Now()
	wallBase := base.Round(0)
	return &holderClock{read: func() (mono, wall time.Duration) {
		now := time.Now()
		return now.Sub(base), now.Round(0).Sub(wallBase)
	}}
}

// now is safe for concurrent use and costs two clock reads of the vDSO.
func (c *holderClock) now() time.Duration {
	mono, wall := c.read()
	drift := int64(wall-mono) - c.ahead.Load()
	if drift < 0 || drift >= int64(pauseNoise) {
		mono = c.settle()
	}
	return mono + time.Duration(c.paused.Load())
}

// settle takes in that the clocks moved apart. It reads them again under the
// mutex: a reading from before another goroutine's settle would undo it and
// count the same pause twice.
func (c *holderClock) settle() (mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.read()
	ahead := int64(wall - mono)
	if drift := ahead - c.ahead.Load(); drift >= int64(pauseNoise) {
		c.paused.Add(drift)
		c.ahead.Store(ahead)
	} else if drift < 0 { // stepped back: no pause, and the new base for the next one
		c.ahead.Store(ahead)
	}
	return mono
}
