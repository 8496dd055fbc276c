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
	read     func() (mono, wall time.Duration)
	base     time.Time
	wallBase int64 // base in Unix nanoseconds

	ahead  atomic.Int64 // wall minus monotonic when last settled
	paused atomic.Int64 // sum of all pauses

	mu sync.Mutex // settle runs one at a time
}

func newHolderClock() *holderClock {
	base := time.Now()
	c := &holderClock{base: base, wallBase: base.UnixNano()}
	c.read = func() (mono, wall time.Duration) { return c.split(time.Now()) }
	return c
}

// split returns both readings of t, each since the base.
func (c *holderClock) split(t time.Time) (mono, wall time.Duration) {
	return t.Sub(c.base), time.Duration(t.UnixNano() - c.wallBase)
}

// now is safe for concurrent use.
func (c *holderClock) now() time.Duration { return c.take(c.read()) }

// at is now for a time that was just read.
func (c *holderClock) at(t time.Time) time.Duration { return c.take(c.split(t)) }

func (c *holderClock) take(mono, wall time.Duration) time.Duration {
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
