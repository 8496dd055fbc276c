package locco

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// callContext is the context of one backend call: the values of the caller's
// context, a deadline of ours, and nothing of the caller's cancellation (spec
// 2.6). It is part of its [Lock] and costs no allocation of its own as long as
// the backend does not ask for Done; context.WithTimeout over
// context.WithoutCancel costs six, and a timer.
type callContext struct {
	values   context.Context
	deadline time.Time
	timeout  time.Duration
	live     atomic.Pointer[liveContext]
}

// liveContext is the real context, made when somebody asks for Done.
type liveContext struct {
	context.Context
	cancel context.CancelFunc
}

var _ context.Context = (*callContext)(nil)

func (c *callContext) init(values context.Context, now time.Time, timeout time.Duration) {
	if values.Done() != nil {
		// Else context.Cause would find the caller's cancellation through Value.
		values = context.WithoutCancel(values)
	}
	c.values, c.deadline, c.timeout = values, now.Add(timeout), timeout
}

func newCallContext(values context.Context, now time.Time, timeout time.Duration) *callContext {
	c := new(callContext)
	c.init(values, now, timeout)
	return c
}

// finish frees what the call held. A context that somebody still uses after the
// call ends at its deadline.
func (c *callContext) finish() {
	if live := c.live.Load(); live != nil {
		live.cancel()
	}
}

// late is the error of a call that had no answer by the deadline.
func (c *callContext) late(key string, err error) error {
	elapsed := c.timeout + time.Since(c.deadline)
	return &LateError{Key: key, Attempts: 1, Elapsed: elapsed, Err: err}
}

// unanswered tells whether err, of a call that failed, says that no answer came in
// time: the deadline has passed, or the driver gave up by a timeout of its own. That of
// another call will do, where calls share a connection. The caller's context does not
// reach a call, so it cannot be that one's end (spec 2.6, 7.2).
func (c *callContext) unanswered(err error) bool {
	return c.expired() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// expired tells whether the deadline has passed.
func (c *callContext) expired() bool { return time.Until(c.deadline) <= 0 }

func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *callContext) Done() <-chan struct{} {
	live := c.live.Load()
	if live == nil {
		ctx, cancel := context.WithDeadline(c.values, c.deadline)
		live = &liveContext{ctx, cancel}
		if !c.live.CompareAndSwap(nil, live) {
			cancel()
			live = c.live.Load()
		}
	}
	return live.Done()
}

func (c *callContext) Err() error {
	if live := c.live.Load(); live != nil {
		return live.Err()
	}
	if c.expired() {
		return context.DeadlineExceeded
	}
	return nil
}

func (c *callContext) Value(key any) any {
	if live := c.live.Load(); live != nil {
		return live.Value(key) // lets a child context find its parent without a goroutine
	}
	return c.values.Value(key)
}
