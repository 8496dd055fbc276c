package locco

import (
	"context"
	"errors"
	"time"
)

// Release frees the key. It works when ctx has ended: it keeps the values of
// ctx, not its cancellation, and takes at most the call timeout.
//
// The error is nil when the key was freed, or left to [HoldAtLeast], or handed
// to a waiter; it matches [ErrLost] when the key was gone or another's; else it
// is the driver's: then the key stays until its lease ends or a later Release
// succeeds. After a success further calls do nothing. From the call on, bound
// contexts are over and nothing extends the lock. Concurrent calls share one
// request.
func (l *Lock) Release(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if l == nil {
		return nil
	}
	began := time.Now()
	now := l.e.at(began)
	l.mu.Lock()
	step, keep, lost := l.lease.releaseStart(now)
	var end signals
	if lost {
		end = l.loseNow(now)
	}
	l.e.keeper.reset(l, now)
	switch step {
	case releaseShared:
		if l.shared == nil {
			l.shared = &sharedResult{done: make(chan struct{})}
		}
		shared := l.shared
		l.mu.Unlock()
		<-shared.done
		return shared.err
	case releaseOver:
		err := l.lostErr
		l.mu.Unlock()
		end.fire()
		l.deliver()
		return err
	}
	bound, again := l.takeBound(), l.releaseFailed
	l.endExtendWait()
	var extended chan struct{}
	if step == releaseKeep && l.lease.extending {
		extended = make(chan struct{})
		l.extendWait = extended
	}
	l.mu.Unlock()
	end.fire()
	bound.endAll(ErrReleased)
	if extended != nil {
		// The extension under way would undo the shorter lease of HoldAtLeast if
		// it arrived after it. It takes no longer than its call may.
		<-extended
		began = time.Now()
		l.mu.Lock()
		keep = max(l.lease.keepEnd-l.e.at(began), 0)
		l.mu.Unlock()
	}
	return l.release(ctx, began, now, keep, again)
}

// release sends the request that releaseStart allowed. keep is 0, or the lease
// with which the key stays.
func (l *Lock) release(ctx context.Context, began time.Time, sent, keep time.Duration, again bool) (err error) {
	var ours bool
	outcome := OutcomeFreed
	finished := false
	defer func() { // also when the backend panics
		if !finished {
			err = l.released(sent, false, again, 0, outcome, errPanicked)
		}
	}()
	call := &l.releaseCall
	if again {
		call = new(callContext)
	}
	call.init(ctx, began, l.e.callTimeout)
	defer call.finish()
	if keep > 0 {
		outcome = OutcomeKept
		ours, err = l.sendKeep(call, keep)
	} else {
		ours, outcome, err = l.free(ctx, call)
	}
	finished = true
	return l.released(sent, ours, again, keep, outcome, err)
}

// released takes in the answer to a release.
func (l *Lock) released(sent time.Duration, ours, again bool, keep time.Duration, outcome Outcome, err error) error {
	now := l.e.now()
	var end signals
	var ev Event
	direct := false
	l.mu.Lock()
	wasLost := l.lostErr != nil
	lost := l.lease.releaseDone(now, ours, again, err)
	l.releaseFailed = l.releaseFailed || err != nil
	held := l.lease.heldFor(now)
	if err != nil {
		l.note(Event{Kind: EventReleaseFailed, Key: l.key, TTL: l.lease.ttl, Held: held, Err: err})
	}
	switch {
	case lost:
		end = l.loseNow(now)
	case err == nil && !wasLost:
		ev = Event{Kind: EventReleased, Key: l.key, TTL: l.lease.ttl, Held: held, Outcome: outcome}
		direct = l.noteDirect(ev)
	default:
		keep = 0
	}
	took := max(now-sent, 1)
	if err != nil || lost {
		took = 0
	}
	if err == nil || l.lostErr != nil {
		err = l.lostErr
	}
	l.e.keeper.reset(l, now)
	shared := l.shared
	l.shared = nil
	l.mu.Unlock()
	if shared != nil {
		shared.err = err
		close(shared.done)
	}
	end.fire()
	if outcome != OutcomeHandedOver {
		l.e.vacate(l, keep, took)
	}
	if direct {
		l.deliverDirect(ev)
	} else {
		l.deliver()
	}
	return err
}

// sendKeep leaves the key to expire when HoldAtLeast has passed.
func (l *Lock) sendKeep(call *callContext, keep time.Duration) (bool, error) {
	lease := l.e.leaseFor(l, 0)
	lease.TTL = wholeMillis(keep)
	ours, err := l.e.backend.Extend(call, lease)
	return ours, callError(call, l.key, err)
}

// free hands the key to the first local waiter, where that may be, or frees it
// (spec 3.6). A hand-over that failed is no reason to keep the key: it may have needed
// what a release does not, such as memory, or a longer lease than the waiter's.
func (l *Lock) free(ctx context.Context, call *callContext) (ours bool, outcome Outcome, err error) {
	if w := l.heir(); w != nil {
		a := l.e.handOver(ctx, l, w)
		switch {
		case a.grant.OK:
			return true, OutcomeHandedOver, nil
		case a.verdict == lookHeld:
			return false, OutcomeFreed, nil
		case a.perhapsStored() && call.expired():
			return false, OutcomeFreed, a.err
		case a.perhapsStored():
			// If this finds the key not ours, the waiter has it (spec 5.4).
			if _, err = l.e.backend.Release(call, l.key, l.token); err != nil {
				return false, OutcomeFreed, errors.Join(a.err, callError(call, l.key, err))
			}
			return true, OutcomeFreed, nil
		}
	}
	ours, err = l.e.backend.Release(call, l.key, l.token)
	return ours, OutcomeFreed, callError(call, l.key, err)
}

// heir returns the waiter that the key may be handed to, and keeps everybody
// else from looking meanwhile.
func (l *Lock) heir() *waiter {
	e := l.e
	if !e.able.transferrer.on.Load() || e.closed.Load() {
		return nil
	}
	sh := e.shard(l.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.rooms[l.key]
	if r == nil || r.owner != l || r.looker != nil || r.head == nil || r.streak >= e.handoverMax {
		return nil
	}
	r.looker = r.head.lock
	return r.head
}

// handOver moves the key from the token of l to w, for whom the room already
// looks.
func (e *engine) handOver(values context.Context, l *Lock, w *waiter) answer {
	a := answer{verdict: lookFailed, err: errPanicked}
	defer func() {
		w.shard.mu.Lock()
		left := w.room.settleTransfer(l, w, a)
		stop := w.room.unwatch()
		w.shard.leave(w.room)
		w.shard.mu.Unlock()
		w.finish(left, stop)
	}()
	a = e.transfer(values, l.token, w.lock)
	if a.verdict == lookLate && a.err != nil {
		a.err = &LateError{Key: l.key, Attempts: 1, Elapsed: a.answered - a.sent, Err: a.err}
	}
	return a
}

// vacate notes that l has the key no longer, since it was lost or since a release
// that took as long as took; the key stays taken for kept.
//
// After as many releases in a row as hand-overs are allowed, other processes get
// their turn (spec 3.6): a waiter here is not told at once, when it would always
// be the first to look, but woken by the backend like all others. In case that
// fails it looks a little later by itself.
func (e *engine) vacate(l *Lock, kept, took time.Duration) {
	sh := e.shard(l.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.rooms[l.key]
	if r == nil {
		return
	}
	mine := r.owner == l
	if mine {
		r.owner = nil
	}
	switch {
	case r.owner != nil || r.head == nil && r.looker == nil:
	case mine && kept > 0 && r.head != nil:
		r.lookBy = time.Now().Add(kept)
		r.head.signal()
	case mine && took > 0 && r.streak >= e.handoverMax:
		r.streak = 0
		if r.watch.wake == nil || r.head == nil {
			r.want()
			break
		}
		r.lookBy = time.Now().Add(max(4*took, 2*time.Millisecond))
		r.head.signal()
	default:
		r.streak++
		r.want()
	}
	sh.leave(r)
}

// wakeRoom lets those who wait for key look: it may have become free.
func (e *engine) wakeRoom(key string) {
	sh := e.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if r := sh.rooms[key]; r != nil && r.owner == nil {
		r.want()
	}
}

// passOn gives the key, which l was granted though nobody wants it any more, to
// the next waiter, or back.
func (e *engine) passOn(values context.Context, l *Lock) {
	sh := e.shard(l.key)
	w, mine := e.successor(sh, l)
	if w != nil {
		if a := e.handOver(values, l, w); a.grant.OK || a.verdict == lookHeld {
			e.emit(Event{Kind: EventGivenBack, Key: l.key, TTL: l.askTTL})
			return
		}
	}
	e.giveBack(values, l)
	if mine {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if r := sh.rooms[l.key]; r != nil && r.looker == l {
			r.looker = nil
			r.want()
			sh.leave(r)
		}
	}
}

// successor returns the waiter to whom the key of l is passed on; nil if it is
// to be given back. mine tells that nobody looks until that is done.
func (e *engine) successor(sh *shard, l *Lock) (w *waiter, mine bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.rooms[l.key]
	if r == nil {
		return nil, false
	}
	if r.owner == l {
		r.owner = nil
	}
	if r.owner != nil || r.looker != nil && r.looker != l {
		if r.looker == l { // its look is over; nobody else would say so
			r.looker = nil
		}
		return nil, false
	}
	r.looker = l
	if r.head == nil || !e.able.transferrer.on.Load() || e.closed.Load() || r.streak >= e.handoverMax {
		return nil, true
	}
	r.looker = r.head.lock
	return r.head, false
}
