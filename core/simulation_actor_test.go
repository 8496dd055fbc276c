package locco_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

// actor is a goroutine of a process that takes locks all the time, in every way
// that there is, and does not always behave well.
type actor struct {
	*process
	rng *rand.Rand
}

func (a *actor) run() {
	for time.Now().Before(a.sim.until) {
		time.Sleep(upTo(a.rng, time.Second))
		if err := pick(a.rng, a.sim.acts)(a); errors.Is(err, locco.ErrClosed) {
			return
		}
	}
}

// acts is what an actor does: those of a seed are some of these.
var acts = []func(*actor) error{
	(*actor).acquire, (*actor).acquire, (*actor).acquire, (*actor).tryAcquire, (*actor).attach,
	(*actor).withLock, (*actor).tryWithLock, (*actor).acquireMany, (*actor).withLocks,
}

// ends is how an actor ends a hold, as acts.
var ends = []func(*actor, context.Context, *holding){
	func(*actor, context.Context, *holding) {}, // abandoned: it expires, the hold limit ends it, or Close
	(*actor).detach, (*actor).release, (*actor).release, (*actor).release,
	(*actor).releaseTwice, (*actor).releaseAndExtend, (*actor).releaseAgain,
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// some returns a few of all, so that the mixture is another one in every run.
func some[T any](r *rand.Rand, all []T) []T {
	few := slices.Clone(all)
	r.Shuffle(len(few), func(i, j int) { few[i], few[j] = few[j], few[i] })
	return few[:1+r.IntN(len(few))]
}

// wish is a call that an actor is about to make.
type wish struct {
	what    string
	key     string
	keys    []string
	ttl     time.Duration
	maxHold time.Duration
	hold    []locco.HoldOption
	opts    []locco.CallOption // about waiting
	most    time.Duration      // the call must be over by then
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Time
}

// wish draws the next call: keys of them, with a context that may end early.
func (a *actor) wish(what string, keys int) *wish {
	r := a.rng
	w := &wish{what: what, ttl: ttl(r), ctx: context.Background()}
	for range keys {
		w.keys = append(w.keys, a.sim.keys[r.IntN(len(a.sim.keys))])
	}
	w.key = w.keys[0]
	if r.IntN(2) == 0 {
		w.maxHold = w.ttl + upTo(r, 20*time.Second)
		w.hold = append(w.hold, locco.AutoExtend(w.maxHold))
		if r.IntN(3) == 0 {
			w.hold = append(w.hold, locco.ExtendEvery(between(r, w.ttl/10, w.ttl/2)))
		}
	}
	if r.IntN(8) == 0 {
		w.hold = append(w.hold, locco.HoldAtLeast(upTo(r, w.ttl)))
	}
	if r.IntN(8) == 0 {
		w.hold = append(w.hold, locco.LockDelay(upTo(r, 5*time.Second)))
	}
	a.patience(w)
	w.cancel = func() {}
	switch r.IntN(4) {
	case 0:
		d := upTo(r, 3*time.Second)
		w.ctx, w.cancel = context.WithTimeout(w.ctx, d)
		w.endsBy(d + a.call())
	case 1:
		w.ctx, w.cancel = context.WithCancel(w.ctx)
		if d := upTo(r, 6*time.Second); r.IntN(2) == 0 {
			time.AfterFunc(d, w.cancel)
			w.endsBy(d + a.call())
		}
	}
	for _, o := range w.hold {
		w.opts = append(w.opts, o)
	}
	w.began = time.Now()
	return w
}

// ttl draws a lease. Many are short, so that an extension is often for longer.
func ttl(r *rand.Rand) time.Duration {
	most := simTTL
	if r.IntN(2) == 0 {
		most = time.Second
	}
	return between(r, 30*time.Millisecond, most)
}

// patience draws the retry budget.
func (a *actor) patience(w *wish) {
	r := a.rng
	most := 50 * time.Millisecond
	delay := between(r, 5*time.Millisecond, 500*time.Millisecond)
	switch r.IntN(4) {
	case 0:
		w.opts = append(w.opts, locco.RetryDelay(0))
	case 1:
		w.opts = append(w.opts, locco.RetryBackoff(locco.Jitter(locco.ExponentialBackoff(delay/8, delay), 0.5)))
	default:
		w.opts = append(w.opts, locco.RetryDelay(delay))
	}
	most = max(most, delay)
	n := r.IntN(6)
	w.most = time.Duration(n+2) * (most + 2*a.call())
	timeout := upTo(r, 8*time.Second)
	switch r.IntN(3) {
	case 0:
		w.opts = append(w.opts, locco.Retries(n))
	case 1:
		w.opts = append(w.opts, locco.RetryTimeout(timeout))
		w.most = timeout + a.call()
	case 2:
		w.opts = append(w.opts, locco.Retries(n), locco.RetryTimeout(timeout))
		w.endsBy(timeout + a.call())
	}
}

// call is how long a call of the backend can take.
func (a *actor) call() time.Duration { return a.callTimeout + simLag }

func (w *wish) endsBy(d time.Duration) { w.most = min(w.most, d) }

// took checks how a call ended that should have taken at most w.most.
func (a *actor) took(w *wish, err error) {
	took := time.Since(w.began)
	if a.closing.Load() { // what came too late is given back first
		w.most += 2 * a.call()
	}
	a.sim.logf(w.key, "%s: %s(%v, %v) took %v: %v", a.name, w.what, w.keys, w.ttl, took, err)
	if took > w.most+a.slack() {
		a.sim.failf(w.key, "%s: %s took %v; want at most %v (spec 2.6, 3.1)", a.name, w.what, took, w.most)
	}
	a.wantError(w.ctx, w.key, w.what, err)
}

var simErrors = []error{
	locco.ErrHeld, locco.ErrLate, locco.ErrLost, locco.ErrReleased, locco.ErrClosed, errPassing, errBroken, errCallback,
}

var errCallback = errors.New("callback: no luck")

// wantError checks that err is one that may be: a context's only if the
// caller's has ended (spec 7.2).
func (a *actor) wantError(ctx context.Context, key, what string, err error) {
	if err == nil {
		return
	}
	timeout := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	known := slices.ContainsFunc(simErrors, func(target error) bool { return errors.Is(err, target) })
	if timeout && ctx.Err() == nil || !timeout && !known {
		a.sim.failf(key, "%s: %s = %v; want another error", a.name, what, err)
	}
}

func (a *actor) acquire() error {
	w := a.wish("Acquire", 1)
	defer w.cancel()
	lock, err := a.locker.Acquire(w.ctx, w.key, w.ttl, w.opts...)
	a.took(w, err)
	if err == nil {
		a.end(a.use(a.sim.returned(a.process, lock, a.rng, w.maxHold)))
	}
	return err
}

func (a *actor) tryAcquire() error {
	w := a.wish("TryAcquire", 1)
	defer w.cancel()
	w.most = a.call()
	lock, err := a.locker.TryAcquire(w.ctx, w.key, w.ttl, w.hold...)
	a.took(w, err)
	if err == nil {
		a.end(a.use(a.sim.returned(a.process, lock, a.rng, w.maxHold)))
	}
	return err
}

func (a *actor) withLock() error {
	w := a.wish("WithLock", 1)
	defer w.cancel()
	return a.scoped(w, func() error {
		return a.locker.WithLock(w.ctx, w.key, w.ttl, a.callback(w), w.opts...)
	})
}

func (a *actor) tryWithLock() error {
	w := a.wish("TryWithLock", 1)
	defer w.cancel()
	w.most = a.call()
	return a.scoped(w, func() error {
		_, err := a.locker.TryWithLock(w.ctx, w.key, w.ttl, a.callback(w), w.hold...)
		return err
	})
}

// scoped makes a call with a callback, which may panic or end its goroutine.
func (a *actor) scoped(w *wish, f func() error) error {
	result := make(chan error, 1) // empty if f did not return
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		err := f()
		a.wantError(w.ctx, w.key, w.what, err)
		result <- err
	}()
	<-done
	select {
	case err := <-result:
		return err
	default:
		return nil
	}
}

func (a *actor) callback(w *wish) func(context.Context, *locco.Lock) error {
	return func(ctx context.Context, lock *locco.Lock) error {
		a.took(w, nil)
		h := a.use(a.sim.returned(a.process, lock, a.rng, w.maxHold))
		if h.State() != locco.StateHeld {
			time.Sleep(1 + a.slack()) // whoever noticed it is at it
			if ctx.Err() == nil {
				a.sim.failf(w.key, "%s: the context of the callback goes on, and its lock is %v", a.name, h.State())
			}
		}
		return a.outcome(h)
	}
}

// outcome ends a callback in one of all ways.
func (a *actor) outcome(h *holding) error {
	switch a.rng.IntN(10) {
	case 0:
		a.end(h)
	case 1:
		panic("callback: a bug")
	case 2:
		runtime.Goexit()
	case 3, 4:
		return errCallback
	}
	return nil
}

func (a *actor) many(what string) *wish {
	w := a.wish(what, 1+a.rng.IntN(4))
	// Its keys are waited for one after the other, extended and, after an error,
	// released.
	w.most = 5*w.most + 6*a.call()
	return w
}

func (a *actor) acquireMany() error {
	w := a.many("AcquireMany")
	defer w.cancel()
	set, err := a.locker.AcquireMany(w.ctx, w.keys, w.ttl, w.opts...)
	a.took(w, err)
	if err != nil {
		return err
	}
	a.useSet(w, set)
	switch a.rng.IntN(8) {
	case 0: // abandoned
	case 1:
		for _, lock := range set.Locks() {
			err := lock.Release(w.ctx)
			a.wantError(context.Background(), w.key, "Release", err)
		}
	default:
		a.wantError(context.Background(), w.key, "LockSet.Release", set.Release(w.ctx))
	}
	return nil
}

func (a *actor) withLocks() error {
	w := a.many("WithLocks")
	defer w.cancel()
	return a.scoped(w, func() error {
		return a.locker.WithLocks(w.ctx, w.keys, w.ttl, func(_ context.Context, set *locco.LockSet) error {
			a.took(w, nil)
			a.useSet(w, set)
			return a.outcome(&holding{Lock: set.Locks()[0], process: a.process})
		}, w.opts...)
	})
}

func (a *actor) useSet(w *wish, set *locco.LockSet) {
	var hs []*holding
	for _, lock := range set.Locks() {
		hs = append(hs, a.sim.returned(a.process, lock, a.rng, w.maxHold))
	}
	if a.rng.IntN(2) == 0 {
		err := set.Extend(w.ctx, ttl(a.rng))
		a.wantError(w.ctx, w.key, "LockSet.Extend", err)
	}
	for _, h := range hs {
		a.use(h)
	}
	lost := slices.ContainsFunc(hs, func(h *holding) bool { return h.State() == locco.StateLost })
	if err := set.Err(); lost && !errors.Is(err, locco.ErrLost) {
		a.sim.failf(w.key, "%s: LockSet.Err = %v; want a loss", a.name, err)
	}
}

// use holds the lock for a while and does to it what can be done.
func (a *actor) use(h *holding) *holding {
	r := a.rng
	for range r.IntN(5) {
		a.sim.write(h)
		time.Sleep(upTo(r, h.TTL()))
		ctx, cancel := context.Background(), func() {}
		if r.IntN(4) == 0 {
			ctx, cancel = context.WithTimeout(ctx, upTo(r, time.Second))
		}
		switch r.IntN(4) {
		case 0, 1:
			ttl := ttl(r)
			began := time.Now()
			err := h.Extend(ctx, ttl)
			a.sim.logf(h.Key(), "%s: Extend(%s, %v) took %v: %v", a.name, h.Token(), ttl, time.Since(began), err)
			a.wantError(ctx, h.Key(), "Extend", err)
		case 2:
			a.wantError(ctx, h.Key(), "Check", h.Check(ctx))
		}
		cancel()
		a.sim.write(h)
		if h.State() != locco.StateHeld && r.IntN(2) == 0 {
			break
		}
	}
	return h
}

// end ends a hold.
func (a *actor) end(h *holding) {
	ctx, cancel := context.WithTimeout(context.Background(), upTo(a.rng, 3*time.Second))
	defer cancel()
	pick(a.rng, a.sim.ends)(a, ctx, h)
}

func (a *actor) detach(ctx context.Context, h *holding) {
	handle, err := h.Detach()
	a.sim.logf(h.Key(), "%s: Detach(%s) = %v", a.name, h.Token(), err)
	a.wantError(ctx, h.Key(), "Detach", err)
	if err == nil {
		a.sim.handOn(handle)
	}
}

func (a *actor) release(ctx context.Context, h *holding) { _ = a.tryRelease(ctx, h) }

func (a *actor) releaseTwice(ctx context.Context, h *holding) {
	var both sync.WaitGroup
	both.Go(func() { a.release(ctx, h) })
	a.release(ctx, h)
	both.Wait()
}

func (a *actor) releaseAndExtend(ctx context.Context, h *holding) {
	var both sync.WaitGroup
	both.Go(func() { a.wantError(ctx, h.Key(), "Extend", h.Extend(ctx, 5*time.Second)) })
	a.release(ctx, h)
	both.Wait()
}

// releaseAgain releases until it works.
func (a *actor) releaseAgain(ctx context.Context, h *holding) {
	for range 3 {
		if err := a.tryRelease(ctx, h); err == nil || errors.Is(err, locco.ErrLost) {
			return
		}
		time.Sleep(upTo(a.rng, time.Second))
	}
}

func (a *actor) tryRelease(ctx context.Context, h *holding) error {
	before, began := h.State(), time.Now()
	err := h.Release(ctx)
	took := time.Since(began)
	a.sim.logf(h.Key(), "%s: Release(%s) took %v: %v", a.name, h.Token(), took, err)
	a.wantError(context.Background(), h.Key(), "Release", err)
	state := h.State()
	if most := a.call() + simLag + a.callTimeout; took > most+a.slack() {
		a.sim.failf(h.Key(), "%s: Release took %v; want at most %v (spec 5.4)", a.name, took, most)
	}
	if before == locco.StateLost && !errors.Is(err, locco.ErrLost) && (err == nil) ||
		state == locco.StateHeld || err == nil && h.Reason() != "" {
		a.sim.failf(h.Key(), "%s: Release = %v of a lock that was %v and is %v (spec 5.4)", a.name, err, before, state)
	}
	return err
}

// attach takes over a lock that somebody has detached.
func (a *actor) attach() error {
	handle, ok := a.sim.takeOver()
	if !ok {
		return nil
	}
	ctx := context.Background()
	ttl := ttl(a.rng)
	lock, err := a.locker.Attach(ctx, handle, ttl)
	a.sim.logf(handle.Key, "%s: Attach(%s, %v) = %v", a.name, handle.Token, ttl, err)
	a.wantError(ctx, handle.Key, "Attach", err)
	switch {
	case err == nil:
		a.end(a.use(a.sim.returned(a.process, lock, a.rng, 0)))
	case !errors.Is(err, locco.ErrLost):
		if handle.Ceiling == 0 || ttl < handle.Ceiling {
			handle.Ceiling = ttl
		}
		a.sim.handOn(handle)
	}
	return err
}

// handOn puts a handle where another process finds it.
func (s *simulation) handOn(h locco.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles = append(s.handles, h)
}

func (s *simulation) takeOver() (h locco.Handle, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.handles) == 0 {
		return h, false
	}
	h = s.handles[0]
	s.handles = s.handles[1:]
	return h, true
}
