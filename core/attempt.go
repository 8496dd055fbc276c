package locco

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// verdict is what a look at the backend came to.
type verdict uint8

const (
	lookGranted verdict = iota // the lease is stored and its answer came in time
	lookHeld                   // another holder has the key
	lookLate                   // no answer, or not in time: perhaps stored (spec 1.6)
	lookFailed                 // the driver's error: perhaps stored
	lookInvalid                // the backend is set up wrong: surely not stored
)

// answer is a verdict with its details.
type answer struct {
	verdict  verdict
	grant    Grant
	err      error         // lookLate: the driver's, may be nil; lookFailed, lookInvalid
	sent     time.Duration // holder's clock
	answered time.Duration
}

// passing tells whether the call may try again (spec 3.7).
func (e *engine) passing(a answer) bool {
	return a.verdict == lookHeld || a.verdict == lookLate ||
		a.verdict == lookFailed && e.able.retryer != nil && e.able.retryer.Retryable(a.err)
}

// perhapsStored tells whether the token may be stored though nobody holds it.
func (a answer) perhapsStored() bool { return a.verdict == lookLate || a.verdict == lookFailed }

// leaseFor is what the backend is asked to keep for l: never less than ttl, in
// whole milliseconds, and the lock delay on top (spec 1.3, 1.10).
func (e *engine) leaseFor(l *Lock, ttl time.Duration) Lease {
	return Lease{Key: l.key, Token: l.token, TTL: wholeMillis(ttl + l.settings.lockDelay), Fenced: e.fencing}
}

// look makes one attempt, at now, to take l.key. It is the only place that calls
// Backend.Acquire.
func (e *engine) look(values context.Context, l *Lock, call *callContext, now time.Time, again, wantLeft bool) answer {
	lease := e.leaseFor(l, l.askTTL)
	lease.Again, lease.WantLeft = again, wantLeft
	call.init(values, now, e.callLimit(l.askTTL))
	defer call.finish()
	a := answer{sent: e.at(now)}
	a.grant, a.err = e.backend.Acquire(call, lease)
	e.judge(&a, l, call)
	return a
}

// judge reads the answer to a request for a lease of l.
func (e *engine) judge(a *answer, l *Lock, call *callContext) {
	a.answered = e.now()
	switch {
	case a.err != nil && errors.Is(a.err, ErrInvalid):
		a.verdict = lookInvalid
	case a.err != nil && call.unanswered(a.err):
		a.verdict = lookLate
	case a.err != nil:
		a.verdict = lookFailed
	case !a.grant.OK:
		a.verdict = lookHeld
	case a.answered-a.sent >= trusted(l.askTTL):
		a.verdict = lookLate
	case e.fencing && (a.grant.Fence < 1 || a.grant.Fence > maxFence):
		a.verdict = lookFailed
		a.err = fmt.Errorf("locco: the backend granted %q with fence %d; want 1 to 2^53-1", l.key, a.grant.Fence)
	}
}

// transfer asks the backend to hand the key from token from to l.
func (e *engine) transfer(values context.Context, from string, l *Lock) answer {
	now := time.Now()
	call := newCallContext(values, now, e.callLimit(l.askTTL))
	defer call.finish()
	a := answer{sent: e.at(now)}
	a.grant, a.err = e.able.transferrer.impl.Transfer(call, from, e.leaseFor(l, l.askTTL))
	if e.able.transferrer.unsupported(e, a.err) {
		a.verdict = lookInvalid
		return a
	}
	e.judge(&a, l, call)
	return a
}
