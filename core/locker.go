package locco

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Locker takes locks on one backend. Create it with [New]; it is safe for
// concurrent use. One Locker for a backend and prefix in a process is best: calls
// of one Locker wait for a key together, in order of arrival, with one look at
// the backend for all.
type Locker struct {
	e        *engine
	defaults settings
}

// New returns a Locker on backend. It does no I/O. The error matches
// [ErrInvalid] when the backend is nil or says that it was built wrong, when an
// option is out of bounds, or when [WithFencing] asks for what the backend does
// not have.
func New(backend Backend, opts ...Option) (*Locker, error) {
	c := config{callTimeout: defaultCallTimeout, handoverMax: defaultHandoverLimit}
	for _, o := range opts {
		if o != nil {
			o.applyLocker(&c)
		}
	}
	if err := c.validate(backend); err != nil {
		return nil, err
	}
	defaults := builtinSettings().with(c.defaults)
	if err := defaults.validate(0); err != nil {
		return nil, err
	}
	return &Locker{e: newEngine(backend, &c), defaults: defaults}, nil
}

// With returns a view of the same locker with further defaults, applied over
// the present ones. Both share keys, waiters and Close. The error matches
// [ErrInvalid] when an option is out of bounds.
func (lr *Locker) With(opts ...CallOption) (*Locker, error) {
	defaults := lr.defaults.with(opts)
	if err := defaults.validate(0); err != nil {
		return nil, err
	}
	return &Locker{e: lr.e, defaults: defaults}, nil
}

// Acquire takes key for ttl, at least 1 ms and at most [MaxDuration], and waits for it within the retry
// budget (by default 10 retries, 200 ms apart) while another holder has it. ctx
// bounds the wait, not the hold.
//
// The error matches [ErrHeld] when the budget was spent while another holder had
// the key; [ErrLate] when the last look had no answer in time; the cause and
// Err of ctx when that ended first (and ErrHeld, if contention was what the
// call waited for); [ErrClosed] after Close; [ErrInvalid] for a bad argument,
// before anything is sent; else it is the driver's.
func (lr *Locker) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...CallOption) (*Lock, error) {
	l, err := lr.prepare(ctx, key, ttl, opts)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if err := lr.e.acquire(ctx, l, now, now, 0); err != nil {
		return nil, err
	}
	return l, nil
}

// TryAcquire looks once and does not wait. The error matches [ErrHeld] only when
// another holder has the key, or a waiter of this locker would be overtaken: a
// look without a usable answer is [ErrLate] or the driver's error, because then
// perhaps nobody has the key. For the rest see [Locker.Acquire].
func (lr *Locker) TryAcquire(ctx context.Context, key string, ttl time.Duration, opts ...HoldOption) (*Lock, error) {
	l, err := lr.prepare(ctx, key, ttl, callOptions(opts))
	if err != nil {
		return nil, err
	}
	if err := lr.e.tryAcquire(ctx, l, time.Now()); err != nil {
		return nil, err
	}
	return l, nil
}

func callOptions(opts []HoldOption) []CallOption {
	if len(opts) == 0 {
		return nil
	}
	all := make([]CallOption, len(opts))
	for i, o := range opts {
		if o != nil {
			all[i] = o
		}
	}
	return all
}

// prepare checks the arguments of a call and draws its token.
func (lr *Locker) prepare(ctx context.Context, key string, ttl time.Duration, opts []CallOption) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	s, err := lr.merge(ttl, opts)
	if err != nil {
		return nil, err
	}
	key = lr.e.prefix + key
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if lr.e.closed.Load() {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, newWaitError(ctx, key, nil)
	}
	return lr.e.newLock(key, ttl, s)
}

// merge applies the call's options over the locker's, and checks the result.
func (lr *Locker) merge(ttl time.Duration, opts []CallOption) (*settings, error) {
	if err := checkTTL(ttl); err != nil {
		return nil, err
	}
	s := &lr.defaults
	if len(opts) > 0 {
		merged := lr.defaults.with(opts)
		s = &merged
	}
	if err := s.validate(ttl); err != nil {
		return nil, err
	}
	return s, nil
}

func (e *engine) newLock(key string, ttl time.Duration, s *settings) (*Lock, error) {
	token, err := e.newToken()
	if err != nil {
		return nil, err
	}
	return &Lock{e: e, settings: s, key: key, token: token, askTTL: ttl, index: -1}, nil
}

// Held returns the locks that this locker holds now, sorted by key: those of all
// its views, attached ones and those of running callbacks included.
func (lr *Locker) Held() []*Lock {
	held := slices.DeleteFunc(lr.e.keeper.held(), func(l *Lock) bool { return l.State() != StateHeld })
	slices.SortFunc(held, func(a, b *Lock) int { return cmp.Compare(a.key, b.key) })
	return held
}

// Close ends the locker and all its views. New calls, waiting ones and the
// contexts of holds end with [ErrClosed]; the callbacks of WithLock and its kin
// are waited for, then their keys are freed; all other locks are released; what
// runs in the background is waited for. Give it a context of its own: one that
// has ended already, such as that of an interrupted main or of a finished test,
// frees nothing. When ctx ends first, nothing is renewed
// any more, and what is left expires by itself.
//
// The errors of the releases are joined with that of ctx. The backend stays
// open: it is the caller's. A second Close waits in the same way. A callback or a
// hook that calls Close waits for itself, until ctx ends.
func (lr *Locker) Close(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	e := lr.e
	e.closed.Store(true)
	e.keeper.close()
	e.endWaits()
	var (
		mu    sync.Mutex // guards errs and left
		errs  []error
		left  bool // a lock, because ctx ended before its turn
		slots = make(chan struct{}, atOnce)
	)
	locks := e.keeper.held()
	for _, l := range locks {
		l.endBound(ErrClosed)
	}
	release := func(l *Lock) {
		e.goBackground(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			over := ctx.Err() != nil
			var err error
			if !over {
				err = l.Release(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			left = left || over
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	for _, l := range locks {
		if !l.scoped { // else the end of its callback releases it
			release(l)
		}
	}
	done := e.callbacks.wait(ctx)
	if done {
		for _, l := range e.keeper.held() {
			if l.scoped { // that failed: once more
				release(l)
			}
		}
		done = e.background.wait(ctx)
	}
	mu.Lock()
	failed := slices.Clip(errs)
	done = done && !left
	mu.Unlock()
	if done {
		return errors.Join(failed...)
	}
	e.gaveUp.Store(true)
	for _, l := range e.keeper.held() {
		l.setRenewal(false)
	}
	return errors.Join(append(failed, newCloseError(ctx))...)
}

// newCloseError is the error of a Close whose context ended. It matches the
// context's cause and its Err.
func newCloseError(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return fmt.Errorf("locco: closing: %w", cause)
	}
	return fmt.Errorf("locco: closing: %w (%w)", cause, err)
}

// atOnce bounds how many releases of a set or of Close are under way together.
const atOnce = 64

// defaultHandoverLimit is the default of WithHandoverLimit.
const defaultHandoverLimit = 8

// endWaits takes every waiter of the locker out of its queue, so that Close waits
// for what they leave behind, whenever their goroutines run.
func (e *engine) endWaits() {
	for i := range e.shards {
		sh := &e.shards[i]
		var ends []func()
		sh.mu.Lock()
		for _, r := range sh.rooms {
			for r.head != nil {
				w := r.head
				w.err = ErrClosed
				left, stop := w.leave()
				w.signal()
				ends = append(ends, func() { e.goBackground(func() { w.finish(left, stop) }) })
			}
		}
		sh.mu.Unlock()
		for _, end := range ends {
			end()
		}
	}
}

// setRenewal turns automatic extension on or off; it stays off after a Close that
// gave up.
func (l *Lock) setRenewal(on bool) {
	now := l.e.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.setRenew(on && !l.e.gaveUp.Load())
	l.e.keeper.reset(l, now)
}

func (c *config) validate(backend Backend) error {
	if backend == nil {
		return &ValidationError{Field: "backend", Value: nil, Rule: "must not be nil"}
	}
	if b, ok := backend.(Validator); ok {
		if err := b.Validate(); err != nil {
			if errors.Is(err, ErrInvalid) {
				return err
			}
			return &ValidationError{Field: "backend", Value: nil, Rule: "must be set up right", Err: err}
		}
	}
	if rule := keyRule(c.prefix); rule != "" {
		return &ValidationError{Field: "WithPrefix", Value: c.prefix, Rule: rule}
	}
	if err := checkDuration("WithCallTimeout", c.callTimeout, minDuration); err != nil {
		return err
	}
	if c.handoverMax < 0 {
		return &ValidationError{Field: "WithHandoverLimit", Value: c.handoverMax, Rule: "must be at least 0"}
	}
	if c.hasTokenFunc && c.tokenFunc == nil {
		return &ValidationError{Field: "WithTokenFunc", Value: nil, Rule: "must not be nil"}
	}
	if c.hasClock && c.clock == nil {
		return &ValidationError{Field: "WithClock", Value: nil, Rule: "must not be nil"}
	}
	if c.fencing {
		if b, ok := backend.(Fencer); !ok || !b.Fences() {
			return &ValidationError{Field: "WithFencing", Value: true, Rule: "the backend has no fencing tokens"}
		}
	}
	return nil
}
