package locco

import "time"

// MaxDuration is the longest duration that locco takes anywhere: ten years. A
// longer one is a validation error, which also keeps every sum of durations far
// from overflow.
const MaxDuration = 10 * 365 * 24 * time.Hour

// defaultCallTimeout is how long one call of the backend may take.
const defaultCallTimeout = 3 * time.Second

// Option is an option of [New]. Options are made by the With… functions.
type Option interface {
	applyLocker(c *config)
}

// CallOption is an option of one call that takes a lock, or of all of them
// through [WithDefaults]. An option given twice counts once: the last wins.
type CallOption interface {
	applyCall(s *settings)
}

// HoldOption is a [CallOption] that is not about waiting, and so serves
// [Locker.TryAcquire] too.
type HoldOption interface {
	CallOption
	holdOption()
}

// config is what New collects.
type config struct {
	prefix       string
	fencing      bool
	defaults     []CallOption
	hook         func(Event)
	tokenFunc    func() string
	clock        func() time.Duration
	callTimeout  time.Duration
	handoverMax  int
	hasTokenFunc bool
	hasClock     bool
}

type option func(c *config)

func (o option) applyLocker(c *config) { o(c) }

// WithPrefix puts prefix in front of every key: at most 1,024 bytes of UTF-8
// without NUL. The default is none. With a
// prefix, an empty key is no error: it is the prefix alone.
func WithPrefix(prefix string) Option { return option(func(c *config) { c.prefix = prefix }) }

// WithFencing asks for a fencing token with every grant; see [Lock.Fence]. A
// backend that has none makes [New] fail.
func WithFencing() Option { return option(func(c *config) { c.fencing = true }) }

// WithDefaults sets call options for every call of the locker. A call's own
// options are applied over them, field by field.
func WithDefaults(opts ...CallOption) Option {
	return option(func(c *config) { c.defaults = append(c.defaults, opts...) })
}

// WithEvents sends every [Event] of the locker to hook. Events of one lock come
// in order; those of several come concurrently. The hook runs on the goroutine
// that caused the event, outside every mutex: it may use the locker, but what
// it takes long to do delays that caller. A panic in it is recovered and
// dropped. Nil means none.
func WithEvents(hook func(Event)) Option {
	return option(func(c *config) { c.hook = hook })
}

// WithTokenFunc replaces the source of tokens, by default 16 bytes of
// crypto/rand in lower-case hex. f must be safe for concurrent use and never
// return the same token twice, nor one that can be guessed: a token is the right
// to extend and to release. A token that is empty, not valid UTF-8, has a NUL or
// is longer than 256 bytes is a validation error of the call that drew it.
func WithTokenFunc(f func() string) Option {
	return option(func(c *config) { c.tokenFunc, c.hasTokenFunc = f, true })
}

// WithClock replaces the holder's clock: the time since some fixed moment, which
// never goes back and counts the time that the machine was suspended. The
// default is the monotonic clock plus every pause that only the wall clock saw.
// Timers stay the runtime's; they check the clock when they fire.
func WithClock(clock func() time.Duration) Option {
	return option(func(c *config) { c.clock, c.hasClock = clock, true })
}

// WithCallTimeout bounds every call of the backend: at least 1 ms, at most
// [MaxDuration]. The default is 3 s; a call for a shorter lease is bounded by that
// lease.
func WithCallTimeout(d time.Duration) Option {
	return option(func(c *config) { c.callTimeout = d })
}

// WithHandoverLimit bounds how often in a row a released lock goes straight to
// a waiter of the same locker before other processes get their turn. The
// default is 8; 0 turns local hand-over off, less is a validation error.
func WithHandoverLimit(n int) Option {
	return option(func(c *config) { c.handoverMax = n })
}
