package locco

import (
	"context"
	"fmt"
	"time"
)

// Handle is what another process needs to take over a lock: the result of
// [Lock.Detach] and the argument of [Locker.Attach]. It can be stored and sent,
// for example as JSON. Its Token is the right to the key: keep it secret, and use
// a Handle once. A [HoldAtLeast] of the detached lock does not go along. Two processes that attach the same one both believe that they
// hold the lock, with the same fence: what delivers a Handle twice needs a lock
// of its own.
type Handle struct {
	Key          string    `json:"key"` // with the prefix
	Token        string    `json:"token"`
	Fence        int64     `json:"fence,omitzero"`
	HoldDeadline time.Time `json:"holdDeadline,omitzero"` // wall clock; zero: none

	// Ceiling is set when an extension had no answer. It may still be stored, at
	// any time, so that no lease can be relied on for longer than it. In JSON it
	// is a number of nanoseconds.
	Ceiling time.Duration `json:"ceiling,omitzero"`
}

// String names the key and the fence, for logs. It does not show the token.
func (h Handle) String() string { return fmt.Sprintf("locco.Handle(%q, fence %d)", h.Key, h.Fence) }

// Detach ends the hold here without freeing the key, so that another process can
// take it over with [Locker.Attach] before its lease ends. From then on the lock
// is released to this process: bound contexts end with [ErrReleased] and nothing
// extends it. The error matches [ErrLost] or [ErrReleased] when it is not held.
func (l *Lock) Detach() (Handle, error) {
	if l == nil {
		return Handle{}, ErrReleased
	}
	deadline := l.HoldDeadline()
	now := l.e.now()
	var end signals
	l.mu.Lock()
	err := l.errNow()
	ok, lost := l.lease.detach(now)
	ceiling := l.lease.ceiling
	switch {
	case lost:
		end = l.loseNow(now)
		err = l.lostErr
	case ok:
		l.note(Event{
			Kind: EventReleased, Key: l.key, TTL: l.lease.ttl,
			Held: l.lease.heldFor(now), Outcome: OutcomeDetached,
		})
		end = signals{lock: l, err: ErrReleased, bound: l.takeBound()}
		l.endExtendWait()
	}
	l.e.keeper.reset(l, now)
	l.mu.Unlock()
	end.fire()
	l.deliver()
	if err != nil {
		return Handle{}, err
	}
	return Handle{Key: l.key, Token: l.token, Fence: l.fence, HoldDeadline: deadline, Ceiling: ceiling}, nil
}

// Attach takes over a detached lock by an extension: its lease is ttl from now.
// The key is that of h, with the prefix that it had: the locker adds none. Attach
// before the lease ends: what comes later relies on the backend alone to refuse
// it, and a request of the acquisition that had no answer and is applied very late
// can store the key again.
// A hold deadline in h goes on to count, by the wall clocks of both machines;
// [AutoExtend] can bring it forward, not put it off.
//
// The error matches [ErrLost] when the key is no longer that of h or the hold
// deadline has passed; for the rest see [Locker.Acquire]. After a driver's error
// or [ErrLate] Attach may be called again while the lease lasts; the extension of the failed
// call may still be stored, so lower the Ceiling of h to its ttl first.
func (lr *Locker) Attach(ctx context.Context, h Handle, ttl time.Duration, opts ...HoldOption) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	s, err := lr.merge(ttl, callOptions(opts))
	if err != nil {
		return nil, err
	}
	if err := checkKey(h.Key); err != nil {
		return nil, err
	}
	if err := checkToken(h.Token); err != nil {
		return nil, err
	}
	if h.Fence < 0 || h.Fence > maxFence {
		return nil, &ValidationError{Field: "fence", Value: h.Fence, Rule: "must be 0 to 2^53-1"}
	}
	if h.Ceiling != 0 {
		if err := checkDuration("ceiling", h.Ceiling, minDuration); err != nil {
			return nil, err
		}
	}
	e := lr.e
	if e.closed.Load() {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, newWaitError(ctx, h.Key, nil)
	}
	ask, limit := ttl, time.Duration(0)
	if !h.HoldDeadline.IsZero() {
		limit = min(time.Until(h.HoldDeadline), MaxDuration)
		if limit < minDuration {
			return nil, &LostError{Key: h.Key, Reason: ReasonMaxHold}
		}
		ask = min(ttl, reaching(limit))
	}
	l := &Lock{e: e, settings: s, key: h.Key, token: h.Token, askTTL: ttl, fence: h.Fence, attempts: 1, index: -1}
	var sent time.Duration
	ours := false
	err = e.await(ctx, h.Key, func() (err error) {
		now := time.Now()
		call := newCallContext(ctx, now, e.callLimit(ask))
		defer call.finish()
		sent = e.at(now)
		ours, err = e.backend.Extend(call, e.leaseFor(l, ask))
		return callError(call, h.Key, err)
	})
	if err != nil {
		return nil, err
	}
	now := e.now()
	l.lease = newLease(sent, now, ttl, s)
	if l.lease.ceiling = h.Ceiling; h.Ceiling > 0 {
		ask = min(ask, h.Ceiling)
	}
	l.lease.limit(ask, limit)
	switch {
	case !ours:
		return nil, &LostError{Key: h.Key, Reason: ReasonExtend}
	case now >= l.lease.end:
		return nil, &LateError{Key: h.Key, Attempts: 1, Elapsed: now - sent}
	}
	e.enterOwner(l)
	if !e.begin(l, now, Event{Kind: EventAcquired, Key: l.key, TTL: ttl, Attempts: 1, Fence: l.fence}) {
		e.vacate(l, 0, 0)
		return nil, ErrClosed
	}
	return l, nil
}
