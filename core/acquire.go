package locco

import (
	"context"
	"time"
)

// acquire takes the key of l, from now on, within its retry budget, which began
// at began. unanswered is how many attempts may have stored its token already. The common
// case, a key that nobody of this locker wants, needs no waiter.
func (e *engine) acquire(ctx context.Context, l *Lock, now, began time.Time, unanswered int) error {
	sh := e.shard(l.key)
	sh.mu.Lock()
	r, fresh := sh.enter(l.key)
	if !fresh {
		w := e.newWaiter(ctx, l, sh, began, unanswered)
		w.point, w.queued = now, true // its first look: made or answered by those who are there
		r.push(w, false)
		sh.mu.Unlock()
		return w.wait()
	}
	r.looker = l
	if !e.inline(ctx, true) {
		w := e.newWaiter(ctx, l, sh, began, unanswered)
		r.push(w, false)
		w.takeFirst()
		sh.mu.Unlock()
		e.goBackground(w.attempt)
		return w.wait()
	}
	sh.mu.Unlock()

	a := e.firstLook(ctx, l, sh, r, now, unanswered > 0)
	sh.mu.Lock()
	if a.verdict == lookGranted {
		r.looker = nil
		r.took(l)
		sh.mu.Unlock()
		return e.accept(ctx, l, a, a.answered, 0, 1, false)
	}
	w := e.newWaiter(ctx, l, sh, began, unanswered)
	r.push(w, true)
	w.takeFirst()
	left := r.settle(e, w, a)
	sh.mu.Unlock()
	w.finish(left, nil)
	return w.wait()
}

// takeFirst notes that the look under way is the waiter's first.
func (w *waiter) takeFirst() {
	w.spent, w.due = 1, true
	w.room.due = append(w.room.due, w)
}

// firstLook is look; a panic of the backend leaves the room usable.
func (e *engine) firstLook(ctx context.Context, l *Lock, sh *shard, r *room, now time.Time, again bool) (a answer) {
	done := false
	defer func() {
		if !done {
			sh.mu.Lock()
			r.looker = nil
			r.want()
			sh.leave(r)
			sh.mu.Unlock()
		}
	}()
	a = e.look(ctx, l, &l.acquireCall, now, again, l.settings.retry.Retries != 0)
	done = true
	return a
}

// accept makes a lock of a grant at now, unless the context ended first, the locker was
// closed, or the lease ran out before the caller's goroutine ran.
func (e *engine) accept(ctx context.Context, l *Lock, a answer, now, waited time.Duration, attempts int, reset bool) error {
	l.fence, l.waited, l.attempts = a.grant.Fence, waited, attempts
	l.lease = newLease(a.sent, a.answered, l.askTTL, l.settings)
	if reset { // an unanswered look may still set the lease anew, to no more than this
		l.lease.ceiling = l.askTTL
	}
	var err error
	switch {
	case ctx.Err() != nil:
		err = newWaitError(ctx, l.key, nil)
	case now >= l.lease.end:
		err = &LateError{Key: l.key, Attempts: attempts, Elapsed: max(waited, now-a.sent)}
	case e.closed.Load():
		err = ErrClosed
	}
	if err == nil {
		if e.begin(l, now, Event{
			Kind: EventAcquired, Key: l.key, TTL: l.askTTL,
			Waited: waited, Attempts: attempts, Fence: l.fence,
		}) {
			return nil
		}
		err = ErrClosed
	}
	e.cleanUp(func() { e.passOn(ctx, l) })
	e.emit(Event{Kind: EventAcquireFailed, Key: l.key, TTL: l.askTTL, Err: err, Waited: waited, Attempts: attempts})
	return err
}

// begin starts to keep l, and reports that by ev before anything else that
// happens to l; false if the locker was closed.
func (e *engine) begin(l *Lock, now time.Duration, ev Event) bool {
	l.mu.Lock()
	kept := e.keeper.add(l, now)
	direct := kept && l.noteDirect(ev)
	l.mu.Unlock()
	if direct {
		l.deliverDirect(ev)
	}
	return kept
}

// tryAcquire looks once.
func (e *engine) tryAcquire(ctx context.Context, l *Lock, began time.Time) error {
	sh := e.shard(l.key)
	sh.mu.Lock()
	r := sh.rooms[l.key]
	waited := r != nil && r.head != nil // it would be overtaken
	var last answer
	if waited {
		last = r.last()
	}
	sh.mu.Unlock()
	if waited {
		return e.tryFailed(l, began, last)
	}
	a, answered := attend(ctx, e,
		func() answer { return e.look(ctx, l, &l.acquireCall, began, false, false) },
		func(a answer) {
			if a.verdict == lookGranted || a.perhapsStored() {
				e.giveBack(ctx, l)
			}
		})
	switch {
	case answered && a.verdict == lookGranted:
		e.enterOwner(l)
		return e.accept(ctx, l, a, a.answered, 0, 1, false)
	case answered && a.perhapsStored():
		e.cleanUp(func() { e.giveBack(ctx, l) })
	}
	if ctx.Err() != nil {
		err := newWaitError(ctx, l.key, nil)
		e.emit(Event{Kind: EventAcquireFailed, Key: l.key, TTL: l.askTTL, Err: err, Attempts: 1})
		return err
	}
	return e.tryFailed(l, began, a)
}

// attend makes the first attempt of a call that does not queue. If ctx ends
// before the answer, it returns false, and abandoned gets the answer later.
func attend[T any](ctx context.Context, e *engine, attempt func() T, abandoned func(T)) (a T, answered bool) {
	if e.inline(ctx, true) {
		return attempt(), true
	}
	answers := make(chan T) // unbuffered: an answer is taken here, or abandoned
	e.goBackground(func() {
		a := attempt()
		select {
		case answers <- a:
		case <-ctx.Done():
			abandoned(a)
		}
	})
	select {
	case a = <-answers:
		return a, true
	case <-ctx.Done():
		return a, false
	}
}

func (e *engine) tryFailed(l *Lock, began time.Time, a answer) error {
	elapsed := time.Since(began)
	err, reason := a.err, ReasonLate
	switch a.verdict {
	case lookHeld:
		err, reason = &HeldError{Key: l.key, Attempts: 1, Elapsed: elapsed}, ReasonHeld
	case lookLate:
		err = &LateError{Key: l.key, Attempts: 1, Elapsed: elapsed, Err: a.err}
	}
	if a.verdict == lookHeld || a.verdict == lookLate {
		e.emit(Event{
			Kind: EventContended, Key: l.key, TTL: l.askTTL,
			Attempts: 1, Elapsed: elapsed, Reason: reason, Err: a.err,
		})
	}
	e.emit(Event{Kind: EventAcquireFailed, Key: l.key, TTL: l.askTTL, Err: err, Attempts: 1})
	return err
}

// enterOwner notes a grant that was not asked for by the room.
func (e *engine) enterOwner(l *Lock) {
	sh := e.shard(l.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r, _ := sh.enter(l.key)
	r.took(l)
}
