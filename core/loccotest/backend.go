package loccotest

import (
	"context"
	"errors"
	"math/bits"
	"sync"

	locco "github.com/locco-go/locco/core"
)

// Backend is a [locco.Backend] that passes calls on to another one, and on the
// way does to them what it was told to. Create it with [Wrap]. It is safe for
// concurrent use.
//
// It has the optional abilities and answers [errors.ErrUnsupported] where the
// wrapped backend lacks one. Only [locco.Immediate] it never is, because a call
// that meets a fault may block: even around a backend in memory, a Locker treats
// it as one that is reached over a network.
type Backend struct {
	inner        locco.Backend
	watcher      locco.Watcher
	transferrer  locco.Transferrer
	manyAcquirer locco.ManyAcquirer
	manyExtender locco.ManyExtender

	mu     sync.Mutex // guards what follows; never held over a call or the hook
	faults faults
	lost   faults // wake-ups to swallow
	counts [len(opNames)]int
	hook   func(Call)
	tokens tokens
}

var (
	_ locco.Backend      = (*Backend)(nil)
	_ locco.Fencer       = (*Backend)(nil)
	_ locco.Retryer      = (*Backend)(nil)
	_ locco.Watcher      = (*Backend)(nil)
	_ locco.Transferrer  = (*Backend)(nil)
	_ locco.ManyAcquirer = (*Backend)(nil)
	_ locco.ManyExtender = (*Backend)(nil)
	_ locco.Validator    = (*Backend)(nil)
)

// Wrap returns a Backend around inner, without faults. A nil inner is found by
// [locco.New].
func Wrap(inner locco.Backend) *Backend {
	b := &Backend{inner: inner, tokens: tokens{}}
	b.watcher, _ = inner.(locco.Watcher)
	b.transferrer, _ = inner.(locco.Transferrer)
	b.manyAcquirer, _ = inner.(locco.ManyAcquirer)
	b.manyExtender, _ = inner.(locco.ManyExtender)
	return b
}

// Inject makes calls go wrong from now on. A call that is under way already is
// not hit any more.
func (b *Backend) Inject(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, &f)
}

// Clear removes all faults, those of [Backend.LoseWakeups] too. A call that
// hangs already does so until its context ends. What [Backend.Steal] and
// [Backend.Free] did stays done.
func (b *Backend) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults, b.lost = nil, nil
}

// Calls returns how many calls of op there were, faulty ones included. Calls
// that the wrapped backend does not support do not count.
func (b *Backend) Calls(op Op) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i, count := range b.counts {
		if op&(1<<i) != 0 {
			n += count
		}
	}
	return n
}

// OnCall sets a function that is called at the start of every call, on its
// goroutine, with no lock held. It may use all methods of b, and what it injects
// concerns this call already. It takes the place of the function set before; nil
// means none.
func (b *Backend) OnCall(f func(Call)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hook = f
}

// begin counts the call, tells the hook of it and returns what is to happen to
// it.
func (b *Backend) begin(c Call) Effect {
	b.mu.Lock()
	b.counts[bits.TrailingZeros16(uint16(c.Op))]++
	hook := b.hook
	b.mu.Unlock()
	if hook != nil {
		hook(c)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults.hit(func(f *Fault) bool {
		return f.matches(c) && !(c.Op == ExtendMany && f.singlesOut())
	})
}

// call makes one call, with what is to happen to it.
func call[T any](ctx context.Context, b *Backend, c Call, send func() (T, error)) (T, error) {
	var none T
	effect := b.begin(c)
	if err := effect.request(ctx, c); err != nil {
		return none, err
	}
	answer, err := send()
	if lost := effect.answer(ctx, c); lost != nil {
		return none, lost
	}
	return answer, err
}

// Acquire implements [locco.Backend].
func (b *Backend) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	return call(ctx, b, Call{Op: Acquire, Leases: []locco.Lease{l}}, func() (locco.Grant, error) {
		return b.acquire(ctx, l)
	})
}

// acquire is the wrapped Acquire, and remembers the token.
func (b *Backend) acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	b.sent(l)
	grant, err := b.inner.Acquire(ctx, l)
	b.answered(grant.OK, err, l)
	return grant, err
}

// Extend implements [locco.Backend].
func (b *Backend) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	return call(ctx, b, Call{Op: Extend, Leases: []locco.Lease{l}}, func() (bool, error) {
		ours, err := b.inner.Extend(ctx, l)
		b.found(l.Key, l.Token, ours, err)
		return ours, err
	})
}

// Release implements [locco.Backend].
func (b *Backend) Release(ctx context.Context, key, token string) (bool, error) {
	return call(ctx, b, Call{Op: Release, Leases: []locco.Lease{{Key: key, Token: token}}}, func() (bool, error) {
		ours, err := b.inner.Release(ctx, key, token)
		b.found(key, token, false, err)
		return ours, err
	})
}

// Holds implements [locco.Backend].
func (b *Backend) Holds(ctx context.Context, key, token string) (bool, error) {
	return call(ctx, b, Call{Op: Holds, Leases: []locco.Lease{{Key: key, Token: token}}}, func() (bool, error) {
		ours, err := b.inner.Holds(ctx, key, token)
		b.found(key, token, ours, err)
		return ours, err
	})
}

// Fences implements [locco.Fencer].
func (b *Backend) Fences() bool {
	f, ok := b.inner.(locco.Fencer)
	return ok && f.Fences()
}

// Retryable implements [locco.Retryer]. Errors made by [Transient] pass by
// themselves; of all others the wrapped backend is asked.
func (b *Backend) Retryable(err error) bool {
	if _, ok := errors.AsType[*transientError](err); ok {
		return true
	}
	r, ok := b.inner.(locco.Retryer)
	return ok && r.Retryable(err)
}

// Validate implements [locco.Validator].
func (b *Backend) Validate() error {
	if b.inner == nil {
		return &locco.ValidationError{Field: "backend", Value: b.inner, Rule: "Wrap needs one"}
	}
	if v, ok := b.inner.(locco.Validator); ok {
		return v.Validate()
	}
	return nil
}

// Transfer implements [locco.Transferrer].
func (b *Backend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	if b.transferrer == nil {
		return locco.Grant{}, errors.ErrUnsupported
	}
	return call(ctx, b, Call{Op: Transfer, Leases: []locco.Lease{to}, From: from}, func() (locco.Grant, error) {
		b.sent(to)
		grant, err := b.transferrer.Transfer(ctx, from, to)
		b.answered(grant.OK, err, to)
		b.found(to.Key, from, false, err)
		return grant, err
	})
}
