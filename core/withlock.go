package locco

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// WithLock takes key as [Locker.Acquire] does, runs fn and releases the key. The
// context of fn ends with ctx, when the lock is lost, and when the locker is
// closed. The key is freed only after fn returned, also when ctx ended long
// before; a panic or [runtime.Goexit] in fn releases it too.
//
// The error is that of the acquisition; or that of fn, matching [ErrLost] as
// well if the lock was lost; or, if fn returned nil but the lock was lost before
// the end, a [*LostError] with Completed set: the work was done, but possibly
// not alone. A release that fails with a driver's error is no error here but an
// [EventReleaseFailed]: the key then stays until its lease ends. fn may release
// the lock itself.
func (lr *Locker) WithLock(ctx context.Context, key string, ttl time.Duration,
	fn func(ctx context.Context, lock *Lock) error, opts ...CallOption,
) error {
	if fn == nil {
		return errNilCallback()
	}
	l, err := lr.prepare(ctx, key, ttl, opts)
	if err != nil {
		return err
	}
	l.scoped = true
	l.e.callbacks.add()
	defer l.e.callbacks.done()
	now := time.Now()
	if err := l.e.acquire(ctx, l, now, now, 0); err != nil {
		return err
	}
	return during(ctx, l, fn)
}

// Do is [Locker.WithLock] for a callback with a result. The result of fn is
// returned whatever the error is: also when the lock was lost although the work
// completed.
func Do[T any](ctx context.Context, lr *Locker, key string, ttl time.Duration,
	fn func(ctx context.Context, lock *Lock) (T, error), opts ...CallOption,
) (result T, err error) {
	if fn == nil {
		return result, errNilCallback()
	}
	err = lr.WithLock(ctx, key, ttl, func(ctx context.Context, lock *Lock) (err error) {
		result, err = fn(ctx, lock)
		return err
	}, opts...)
	return result, err
}

// TryWithLock takes key as [Locker.TryAcquire] does and, if that worked, does
// what [Locker.WithLock] does. ran tells whether fn was called: if not, err says
// why, and matches [ErrHeld] when another holder has the key; if so, err is as
// WithLock says, and an ErrHeld in it is the callback's own.
func (lr *Locker) TryWithLock(ctx context.Context, key string, ttl time.Duration,
	fn func(ctx context.Context, lock *Lock) error, opts ...HoldOption,
) (ran bool, err error) {
	if fn == nil {
		return false, errNilCallback()
	}
	l, err := lr.prepare(ctx, key, ttl, callOptions(opts))
	if err != nil {
		return false, err
	}
	l.scoped = true
	l.e.callbacks.add()
	defer l.e.callbacks.done()
	if err := l.e.tryAcquire(ctx, l, time.Now()); err != nil {
		return false, err
	}
	return true, during(ctx, l, fn)
}

// WithLocks takes a set of keys as [Locker.AcquireMany] does, runs fn and
// releases them; the rules are those of [Locker.WithLock]. The context of fn
// ends when any of the locks is lost.
func (lr *Locker) WithLocks(ctx context.Context, keys []string, ttl time.Duration,
	fn func(ctx context.Context, set *LockSet) error, opts ...CallOption,
) error {
	if fn == nil {
		return errNilCallback()
	}
	lr.e.callbacks.add()
	defer lr.e.callbacks.done()
	set, err := lr.acquireMany(ctx, keys, ttl, true, opts)
	if err != nil {
		return err
	}
	return during(ctx, set, fn)
}

func errNilCallback() error {
	return &ValidationError{Field: "fn", Value: nil, Rule: "must not be nil"}
}

// hold is what during needs of a Lock or a LockSet.
type hold interface {
	Bind(ctx context.Context) context.Context
	Release(ctx context.Context) error
	spoiled() *LostError
}

// during runs fn while h is held, and says how it went (spec 2.3).
func during[H hold](ctx context.Context, h H, fn func(context.Context, H) error) (err error) {
	returned := false
	defer func() {
		_ = h.Release(ctx) // a driver's error is an event; a loss is read below
		lost := h.spoiled()
		switch {
		case !returned: // a panic or Goexit goes on
		case err == nil && lost != nil:
			completed := *lost
			completed.Completed = true
			err = &completed
		case lost != nil && !errors.Is(err, lost):
			err = &callbackError{err: err, lost: lost}
		}
	}()
	err = fn(h.Bind(ctx), h)
	returned = true
	return err
}

// lost returns how the lock was lost, or nil.
func (l *Lock) lost() *LostError {
	lost, _ := errors.AsType[*LostError](l.Err())
	return lost
}

// spoiled returns the loss that the outcome of a callback has to tell of, or nil.
// A lease that ran out after its release had failed is none: the lock was ours
// until then (spec 2.3).
func (l *Lock) spoiled() *LostError {
	lost := l.lost()
	if lost == nil || lost.Reason != ReasonRelease {
		return lost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.releaseFailed {
		return nil
	}
	return lost
}

// callbackError is the error of a callback whose lock was lost too. It matches
// both.
type callbackError struct {
	err  error
	lost *LostError
}

func (e *callbackError) Error() string   { return fmt.Sprintf("%v (%v)", e.err, e.lost) }
func (e *callbackError) Unwrap() []error { return []error{e.err, e.lost} }
