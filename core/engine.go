package locco

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// shardCount spreads the keys over so many mutexes. A power of two.
const shardCount = 64

// engine is what all views of a locker ([Locker.With]) share.
type engine struct {
	backend Backend
	able    abilities

	prefix      string
	fencing     bool
	hook        func(Event)
	tokenFunc   func() string        // nil: crypto/rand
	clock       func() time.Duration // nil: holder
	holder      *holderClock
	clockOrigin time.Duration
	callTimeout time.Duration
	handoverMax int

	seed   maphash.Seed
	shards [shardCount]shard
	keeper keeper

	closed     atomic.Bool
	gaveUp     atomic.Bool // Close did, when its context ended: nothing is renewed any more
	background tally       // attempts and give-backs that nobody waits for
	callbacks  tally       // of WithLock and its kin
}

// abilities is what New found out about the backend. An ability that answers
// [errors.ErrUnsupported] is switched off for good.
type abilities struct {
	immediate    bool
	retryer      Retryer
	watcher      ability[Watcher]
	transferrer  ability[Transferrer]
	manyAcquirer ability[ManyAcquirer]
	manyExtender ability[ManyExtender]
}

// ability is an optional interface of the backend that may turn out not to work.
type ability[T any] struct {
	impl T
	on   atomic.Bool
}

func findAbility[T any](a *ability[T], backend Backend) {
	if impl, ok := backend.(T); ok {
		a.impl = impl
		a.on.Store(true)
	}
}

// unsupported reports whether err says that the ability is missing, and then
// turns it off. The first one to see it reports a notice.
func (a *ability[T]) unsupported(e *engine, err error) bool {
	if !errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if a.turnOff() {
		e.emit(Event{Kind: EventNotice, Err: err})
	}
	return true
}

// turnOff reports whether the ability was on.
func (a *ability[T]) turnOff() bool { return a.on.CompareAndSwap(true, false) }

func newEngine(backend Backend, c *config) *engine {
	e := &engine{
		backend:     backend,
		prefix:      c.prefix,
		fencing:     c.fencing,
		hook:        c.hook,
		tokenFunc:   c.tokenFunc,
		clock:       c.clock,
		callTimeout: c.callTimeout,
		handoverMax: c.handoverMax,
		seed:        maphash.MakeSeed(),
	}
	const first = time.Hour // every reading is positive: 0 means none
	if e.clock == nil {
		e.holder = newHolderClock()
		e.clockOrigin = -first
	} else {
		e.clockOrigin = e.clock() - first
	}
	e.keeper.e = e
	if b, ok := backend.(Immediate); ok {
		e.able.immediate = b.Immediate()
	}
	e.able.retryer, _ = backend.(Retryer)
	findAbility(&e.able.watcher, backend)
	findAbility(&e.able.transferrer, backend)
	findAbility(&e.able.manyAcquirer, backend)
	findAbility(&e.able.manyExtender, backend)
	return e
}

// now reads the holder's clock.
func (e *engine) now() time.Duration { return e.at(time.Now()) }

// at is now for a time that was just read: on the way to the network and back
// every reading of a clock counts.
func (e *engine) at(t time.Time) time.Duration {
	if e.clock != nil {
		return e.clock() - e.clockOrigin
	}
	return e.holder.at(t) - e.clockOrigin
}

// reliable tells whether no wake-up of the backend can be lost.
func (e *engine) reliable() bool { return e.able.immediate && e.able.watcher.on.Load() }

// newToken draws the name of a grant (spec 1.2).
func (e *engine) newToken() (string, error) {
	if e.tokenFunc != nil {
		token := e.tokenFunc()
		return token, checkToken(token)
	}
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails; see its documentation
	var text [32]byte
	hex.Encode(text[:], raw[:])
	return string(text[:]), nil
}

// emit calls the hook for an event that belongs to no lock.
func (e *engine) emit(ev Event) {
	if e.hook == nil {
		return
	}
	defer func() { _ = recover() }() // a hook must not break what it watches
	e.hook(ev)
}

// goBackground runs f on a goroutine that Close waits for.
func (e *engine) goBackground(f func()) {
	e.background.add()
	go func() {
		defer e.background.done()
		f()
	}()
}

// inline tells whether a call of the backend may run on the caller's goroutine
// although ctx may end before it (spec 2.6).
func (e *engine) inline(ctx context.Context, first bool) bool {
	if ctx.Done() == nil || e.able.immediate {
		return true
	}
	if !first {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= e.callTimeout
}

// await runs f so that the caller gets its error as soon as ctx ends; f then
// goes on without it.
func (e *engine) await(ctx context.Context, key string, f func() error) error {
	if e.inline(ctx, false) {
		return f()
	}
	done := make(chan error, 1)
	e.goBackground(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return newWaitError(ctx, key, nil)
	}
}

// callLimit is the time that a call for a lease of ttl may take.
func (e *engine) callLimit(ttl time.Duration) time.Duration { return min(e.callTimeout, ttl) }

// callError names a timeout within a call as ours: it must not look like the end of the
// caller's context (spec 2.6, 7.2).
func callError(call *callContext, key string, err error) error {
	if err == nil || !call.unanswered(err) {
		return err
	}
	return call.late(key, err)
}

// release asks the backend to free key, once.
func (e *engine) release(values context.Context, key, token string) (bool, error) {
	call := newCallContext(values, time.Now(), e.callTimeout)
	defer call.finish()
	ours, err := e.backend.Release(call, key, token)
	return ours, callError(call, key, err)
}

// giveBack undoes a grant that nobody wants, or that may never have been one.
// It is done once; if that fails the key stays until its lease ends.
func (e *engine) giveBack(values context.Context, l *Lock) {
	_, err := e.release(values, l.key, l.token)
	e.emit(Event{Kind: EventGivenBack, Key: l.key, TTL: l.askTTL, Err: err})
	e.wakeRoom(l.key)
}

// cleanUp runs f, which undoes what nobody wants, without making a caller wait
// for it. Once the locker is closed it runs here, because Close may have returned.
func (e *engine) cleanUp(f func()) {
	e.background.add() // before the look at closed: then Close waits for it, or it runs here
	if e.closed.Load() {
		defer e.background.done()
		f()
		return
	}
	go func() {
		defer e.background.done()
		f()
	}()
}

// tally counts what is under way, and lets somebody wait for it to end.
type tally struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n gets to 0; made by wait
}

func (t *tally) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tally) done() {
	t.mu.Lock()
	if t.n--; t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
	t.mu.Unlock()
}

// wait returns when nothing is under way, or false when ctx ended first.
func (t *tally) wait(ctx context.Context) bool {
	for {
		t.mu.Lock()
		if t.n == 0 {
			t.mu.Unlock()
			return true
		}
		if t.zero == nil {
			t.zero = make(chan struct{})
		}
		zero := t.zero
		t.mu.Unlock()
		select {
		case <-zero:
		case <-ctx.Done():
			return false
		}
	}
}
