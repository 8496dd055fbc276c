package locco

import (
	"context"
	"time"
)

// waiter is a call that could not have its key at the first look, or whose
// first look runs without it. The shard's mutex guards what is below the line.
type waiter struct {
	e     *engine
	shard *shard
	ctx   context.Context
	lock  *Lock // to be filled by a grant
	awake chan struct{}

	began    time.Time
	deadline time.Time // of the retry timeout; zero: none
	delay    time.Duration

	// ---
	room       *room
	prev, next *waiter
	gone       bool // not in the queue any more

	spent  int       // points of the timetable that have passed, the first look included
	point  time.Time // the next one; zero: not known yet
	due    bool      // the point has passed, and a look serves it
	lookAt time.Time // a look that was put off for the room's pace; zero: none
	looks  int       // made for this waiter
	queued bool      // not granted by a first look that found nobody else

	unanswered   int // looks and hand-overs that may have stored the token
	granted      bool
	answer       answer
	err          error  // ends the wait
	contended    Reason // an event to emit
	contendedErr error
}

func (e *engine) newWaiter(ctx context.Context, l *Lock, sh *shard, began time.Time, unanswered int) *waiter {
	w := &waiter{
		e: e, shard: sh, ctx: ctx, lock: l, began: began, unanswered: unanswered,
		awake: make(chan struct{}, 1),
	}
	if timeout := l.settings.retry.Timeout; timeout > 0 {
		w.deadline = began.Add(timeout)
	}
	return w
}

// last tells whether the timetable has no further point.
func (w *waiter) last() bool {
	retries := w.lock.settings.retry.Retries
	return retries != Unlimited && w.spent > retries
}

// attempts is how many looks the call made or shared.
func (w *waiter) attempts() int { return max(w.spent, w.looks, 1) }

// step is what a waiter does next.
type step uint8

const (
	stepSleep step = iota
	stepGranted
	stepLeave
	stepLook
	stepPlan // compute the next point
	stepWatch
)

// wait queues until the call has its lock or an error. It runs on the caller's
// goroutine.
func (w *waiter) wait() error {
	var timer *time.Timer
	ended := false
	defer func() {
		if timer != nil {
			timer.Stop()
		}
		if !ended {
			w.quit()
		}
	}()
	for {
		w.shard.mu.Lock()
		step, until, wake := w.decide(time.Now())
		left, stop := nothingLeft, (func())(nil)
		if step == stepLeave { // before anybody can hand the key to a waiter that leaves
			left, stop = w.leave()
		}
		contended, contendedErr, attempts := w.contended, w.contendedErr, w.attempts()
		w.contended = ""
		w.shard.mu.Unlock()
		if contended != "" {
			w.e.emit(Event{
				Kind: EventContended, Key: w.lock.key, TTL: w.lock.askTTL,
				Attempts: attempts, Elapsed: time.Since(w.began), Reason: contended, Err: contendedErr,
			})
		}
		switch step {
		case stepGranted:
			ended = true
			waited := time.Duration(0)
			if w.queued {
				waited = max(time.Since(w.began), 1)
			}
			return w.e.accept(w.ctx, w.lock, w.answer, w.e.now(), waited, attempts, w.unanswered > 1)
		case stepLeave:
			ended = true
			w.finish(left, stop)
			w.e.emit(Event{
				Kind: EventAcquireFailed, Key: w.lock.key, TTL: w.lock.askTTL,
				Err: w.err, Waited: time.Since(w.began), Attempts: attempts,
			})
			return w.err
		case stepLook:
			w.look()
			continue
		case stepPlan:
			w.plan()
			continue
		case stepWatch:
			w.watch()
			continue
		}
		var alarm <-chan time.Time
		if !until.IsZero() {
			if timer == nil {
				timer = time.NewTimer(time.Until(until))
			} else {
				timer.Reset(time.Until(until))
			}
			alarm = timer.C
		}
		select {
		case <-w.awake:
		case <-w.ctx.Done():
		case <-alarm:
		case <-wake:
			w.shard.mu.Lock()
			w.room.lookWanted, w.room.timedLook, w.room.prompted = true, false, true
			w.shard.mu.Unlock()
			w.e.emit(Event{Kind: EventWakeUp, Key: w.lock.key, TTL: w.lock.askTTL, Outcome: OutcomeReceived})
		}
	}
}

// decide says what to do at now, and until when to sleep if that is nothing. It
// is called with the mutex.
func (w *waiter) decide(now time.Time) (do step, until time.Time, wake <-chan struct{}) {
	r := w.room
	switch {
	case w.granted:
		return stepGranted, until, nil
	case w.err != nil:
		return stepLeave, until, nil
	case w.e.closed.Load():
		w.err = ErrClosed
		return stepLeave, until, nil
	case w.ctx.Err() != nil:
		w.err = newWaitError(w.ctx, w.lock.key, w.contention(now))
		return stepLeave, until, nil
	case r.looker == w.lock: // its own look or hand-over may finish
		return stepSleep, until, nil
	case !w.deadline.IsZero() && !now.Before(w.deadline):
		w.err = w.failure(now)
		return stepLeave, until, nil
	}
	if !w.due {
		if w.point.IsZero() {
			if w.last() {
				w.err = w.failure(now)
				return stepLeave, until, nil
			}
			return stepPlan, until, nil
		}
		if !now.Before(w.point) {
			w.reach(now)
			if w.point.IsZero() {
				return w.decide(now)
			}
		}
	}
	if !w.lookAt.IsZero() && !now.Before(w.lookAt) {
		if w.lookAt = r.paced.Add(w.delay); !now.Before(w.lookAt) { // else another one has looked since
			w.lookAt = time.Time{}
			r.ask(w, now)
		}
	}
	head := r.head == w
	watchable := head && !r.watch.asked && w.e.able.watcher.on.Load()
	if head && r.owner != nil {
		r.lookWanted = false // nobody looks while a local lock holds the key
		if watchable && r.streak >= w.e.handoverMax/2 {
			r.watch.asked = true // to be woken when it is the turn of other processes
			return stepWatch, until, nil
		}
	}
	if head && r.owner == nil && r.looker == nil {
		ended := !r.lookBy.IsZero() && !now.Before(r.lookBy)
		if r.lookWanted || ended {
			r.timedLook, r.prompted = r.timedLook && !ended, r.prompted || ended
			r.lookWanted, r.looker = false, w.lock
			return stepLook, until, nil
		}
		if r.held && watchable {
			r.watch.asked = true
			return stepWatch, until, nil
		}
		until = earliest(until, r.lookBy)
		wake = r.watch.wake
	}
	until = earliest(until, w.deadline)
	until = earliest(until, w.lookAt)
	if !w.due {
		until = earliest(until, w.point)
	}
	return stepSleep, until, wake
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// reach spends the point that has come, and sees to it that a look serves it
// where one is needed. Where none is, the next point is to be planned.
func (w *waiter) reach(now time.Time) {
	r := w.room
	w.spent++
	first := w.spent == 1 // joined a key that this locker holds or waits for
	policy := &w.lock.settings.retry
	switch {
	case r.owner != nil, // the answer is known
		first && r.looker == nil && !r.lookWanted && r.known(),
		w.e.reliable() && !r.watch.failed && !first && !w.last() && r.held:
		switch {
		case !first:
		case r.owner != nil || r.held:
			w.contended = ReasonHeld
		default:
			w.contended, w.contendedErr = ReasonLate, r.lastErr
		}
		if !first && policy.Backoff == nil && policy.Delay == 0 && policy.Retries != Unlimited {
			w.spent = max(policy.Retries, policy.Retries+1) // asking again at once is answered at once
			w.err = w.failure(now)
		}
		w.point = time.Time{}
	case r.looker != nil, r.lookWanted:
		w.due = true
		r.due = append(r.due, w)
	case !w.last() && r.waiting > 1 && now.Sub(r.paced) < w.delay:
		// A look of somebody else's timetable was less than our delay ago. The
		// next is made when our delay has run out since then: so no waiter
		// waits longer than its delay for a look, and the number of looks does
		// not grow with the number of waiters.
		w.lookAt = r.paced.Add(w.delay)
		w.point = time.Time{}
	default:
		w.due = true
		r.due = append(r.due, w)
		r.ask(w, now)
	}
}

// ask wants a look for a timetable.
func (r *room) ask(w *waiter, now time.Time) {
	if r.owner != nil || r.looker != nil {
		return
	}
	r.paced, r.lookWanted, r.timedLook = now, true, true
	if r.head != w {
		r.head.signal()
	}
}

// plan computes the next point of the timetable: one delay after the answer, or
// the moment, that spent the last one. A user's function runs without the mutex.
func (w *waiter) plan() {
	policy := &w.lock.settings.retry
	now := time.Now()
	delay := policy.next(max(w.spent, 1), now.Sub(w.began), w.delay)
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	w.delay = delay
	endless := policy.Retries == Unlimited
	if r := w.room; delay == 0 && endless && (r.owner != nil || w.e.reliable() && r.held) {
		// It is woken when the key is free, and must not turn in circles until
		// then.
		const idle = 50 * time.Millisecond
		delay = idle
	}
	w.point = now.Add(delay)
}

// look makes a look for all who wait, on the goroutine of the caller where that
// may be (spec 2.6).
func (w *waiter) look() {
	if w.e.inline(w.ctx, false) {
		w.attempt()
		return
	}
	w.e.goBackground(w.attempt)
}

func (w *waiter) attempt() {
	a := answer{verdict: lookFailed, err: errPanicked}
	defer func() { // also when the backend panics: the room must not wait for ever
		w.shard.mu.Lock()
		r := w.room
		missed := a.verdict == lookGranted && r.timedLook && r.watch.wake != nil && !r.lookBy.IsZero()
		left := r.settle(w.e, w, a)
		stop := r.unwatch()
		w.shard.leave(r)
		w.shard.mu.Unlock()
		w.finish(left, stop)
		if missed {
			w.e.emit(Event{Kind: EventWakeUp, Key: w.lock.key, TTL: w.lock.askTTL, Outcome: OutcomeMissed})
		}
	}()
	a = w.e.look(w.ctx, w.lock, new(callContext), time.Now(), w.unanswered > 0, true)
}

// finish does what is left to do after an answer, without the mutex.
func (w *waiter) finish(left leftover, stop func()) {
	if stop != nil {
		stop()
	}
	switch left {
	case passItOn:
		w.e.cleanUp(func() { w.e.passOn(w.ctx, w.lock) })
	case undoIt:
		w.e.cleanUp(func() { w.e.giveBack(w.ctx, w.lock) })
	}
}

// leave gives up the place in the queue. What an attempt under way brings is
// seen to by that attempt; what earlier ones may have stored is to be undone. It
// is called with the mutex.
func (w *waiter) leave() (left leftover, stop func()) {
	r := w.room
	if !w.gone && w.unanswered > 0 && r.looker != w.lock {
		left = undoIt
	}
	r.remove(w)
	stop = r.unwatch()
	w.shard.leave(r)
	return left, stop
}

// quit is leave for a waiter whose goroutine panics, in the user's Backoff or in
// the backend: those behind it must not wait for it.
func (w *waiter) quit() {
	w.shard.mu.Lock()
	left, stop := passItOn, (func())(nil)
	if !w.granted {
		left, stop = w.leave()
	}
	w.shard.mu.Unlock()
	w.finish(left, stop)
}

// contention is what the call waited for, if it is known that somebody has the
// key.
func (w *waiter) contention(now time.Time) error {
	r := w.room
	if known := r.lastErr == nil && w.spent > 0 && (r.held || r.owner != nil); !known {
		return nil
	}
	return &HeldError{Key: w.lock.key, Attempts: w.attempts(), Elapsed: now.Sub(w.began)}
}

// failure is the error of the last look, which ends the call when its budget is
// spent (spec 3.7).
func (w *waiter) failure(now time.Time) error {
	r := w.room
	if held := w.contention(now); held != nil && !r.late {
		return held
	}
	if r.lastErr != nil && !r.late {
		return r.lastErr
	}
	return &LateError{Key: w.lock.key, Attempts: w.attempts(), Elapsed: now.Sub(w.began), Err: r.lastErr}
}

// watch subscribes to the wake-ups of the key, once for all who wait. A wake-up
// before the watch was live may have been missed: so one more look.
func (w *waiter) watch() {
	if w.e.able.immediate {
		w.subscribe()
		return
	}
	w.e.goBackground(w.subscribe)
}

func (w *waiter) subscribe() {
	call := newCallContext(w.ctx, time.Now(), w.e.callTimeout)
	wake, stop, err := w.e.able.watcher.impl.Watch(call, w.lock.key)
	call.finish()
	if w.e.able.watcher.unsupported(w.e, err) {
		return
	}
	w.shard.mu.Lock()
	r := w.room
	switch {
	case err != nil:
		r.watch.failed = true
	case r.head != nil && !r.left:
		r.watch.wake, r.watch.stop = wake, stop
		stop = nil
		r.want()
	default: // nobody waits any more
		r.watch = watch{}
	}
	w.shard.mu.Unlock()
	if err != nil {
		w.e.emit(Event{Kind: EventNotice, Key: w.lock.key, TTL: w.lock.askTTL, Err: err})
	} else if stop != nil {
		stop()
	}
}
