package memory

import "time"

// Option is an option of [New]. Options are made by the With… functions.
type Option interface {
	apply(c *config)
}

// config is what New collects.
type config struct {
	clock func() time.Duration
}

type option func(c *config)

func (o option) apply(c *config) { o(c) }

// WithClock replaces the clock that decides when a lease has ended: the time
// since some fixed moment. The default is the monotonic clock.
//
// The clock is read once or more for each operation, with part of the backend
// locked. It must be safe for concurrent use, must not go back and must not use
// the backend. Nil is a validation error of [locco.New]. An option given twice
// counts once: the last wins.
//
// The clock moves no timers. A locker's waiter looks when the lease it waits
// for should have ended by the runtime's timers, so a clock moved by hand suits
// tests that ask the backend directly; whole waits are better tested with
// testing/synctest and the default clock. A locker has a clock of its own,
// [locco.WithClock].
func WithClock(clock func() time.Duration) Option {
	return option(func(c *config) { c.clock = clock })
}
