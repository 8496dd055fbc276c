package locco

import "time"

// This file is the state machine of a lock: what time, answers and calls do to
// it. It is pure: no I/O, no timers, no mutex. Times are readings of the
// holder's clock (see [WithClock]), all of them positive, so that 0 can mean
// none; [Lock] guards it and acts on what it says.

// State is what a lock is to its holder.
type State uint8

// The states of a lock. Only held turns into another state by itself, when its
// lease ends.
const (
	StateHeld     State = iota + 1 // ours, as far as anyone can know
	StateLost                      // no longer ours; see [Lock.Reason]
	StateReleased                  // Release or Detach was called, or the Lock is nil
)

// String returns "held", "lost" or "released".
func (s State) String() string {
	switch s {
	case StateHeld:
		return "held"
	case StateLost:
		return "lost"
	case StateReleased:
		return "released"
	}
	return "unknown"
}

// phase is the state with what only the engine needs to tell apart.
type phase uint8

const (
	phaseHeld       phase = iota
	phaseReleasing        // a release is on its way; nothing else is sent
	phaseUnreleased       // a release failed: the key may still be ours, nobody renews it
	phaseReleased
	phaseLost
)

// trusted is for how long the holder believes in a lease of ttl, from the
// moment that the request left: 1 % less, for a clock that runs slow (spec 1.4).
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 }

// reaching is the lease to ask for so that what can be trusted of it is span:
// the hundredth that trusted takes off is put on top.
func reaching(span time.Duration) time.Duration { return span + span/99 + 1 }

// lease is the state machine. Its zero value is not useful; see newLease.
type lease struct {
	phase  phase
	reason Reason // not empty once lost
	cause  error  // the last driver error, of an extension or a release

	granted time.Duration // when the request that granted it left
	sent    time.Duration // when the request for the present lease left
	end     time.Duration // from here on it is not ours
	holdEnd time.Duration // the deadline of maxHold; 0: none
	keepEnd time.Duration // a release before this moment leaves the key until then; 0: none
	stopped time.Duration // when the hold ended; 0: it has not

	ttl     time.Duration // the latest asked for
	ceiling time.Duration // an extension without an answer may still set a lease this short; 0: none
	every   time.Duration // explicit interval; 0: a third of the lease
	next    time.Duration // when the next extension is due; 0: none

	renew     bool          // extended by the keeper
	extending bool          // an extension waits for its answer
	asked     time.Duration // by that extension
	settled   bool          // the backend has answered a release; nothing more to send
	overdue   bool          // the lease has ended while a release was on its way
}

// newLease is the lease of a grant whose request left at sent and whose answer
// came at answered.
func newLease(sent, answered, ttl time.Duration, s *settings) lease {
	le := lease{granted: sent, sent: sent, ttl: ttl, renew: s.autoExtend, every: s.every}
	le.end = sent + trusted(ttl)
	if s.autoExtend {
		le.holdEnd = sent + s.maxHold
		le.end = min(le.end, le.holdEnd)
	}
	if s.atLeast > 0 {
		// Counted from the answer: the backend granted no later than that.
		le.keepEnd = answered + s.atLeast
	}
	le.plan()
	return le
}

// limit brings the hold deadline of an attached lease forward to hold after its
// request left; 0 means there is none to bring. ask is what the backend was
// asked for.
func (le *lease) limit(ask, hold time.Duration) {
	le.end = min(le.end, le.sent+trusted(ask))
	if hold != 0 && (le.holdEnd == 0 || le.sent+hold < le.holdEnd) {
		le.holdEnd = le.sent + hold
		le.end = min(le.end, le.holdEnd)
	}
	le.plan()
}

// state is what the holder may know. While a release is on its way the lock
// already reads released: somebody else may have the key.
func (le *lease) state() State {
	switch {
	case le.phase == phaseHeld:
		return StateHeld
	case le.phase == phaseLost, le.phase == phaseReleasing && le.reason != "":
		return StateLost
	}
	return StateReleased
}

// interval is the time between two extensions.
func (le *lease) interval() time.Duration {
	span := le.ttl
	if le.ceiling > 0 {
		span = min(span, le.ceiling)
	}
	if le.every > 0 {
		return min(le.every, span/2)
	}
	return span / 3
}

// early is how much before its moment an extension may be sent so that it can
// share a call with another: a twentieth of the interval, at most 100 ms.
func (le *lease) early() time.Duration { return min(le.interval()/20, 100*time.Millisecond) }

// plan sets the next extension one interval after the request for the present
// lease. A lease that runs to the hold deadline needs none.
func (le *lease) plan() {
	le.next = 0
	if le.renew && (le.holdEnd == 0 || le.end < le.holdEnd) {
		le.next = le.sent + le.interval()
	}
}

// setRenew turns renewal on or off; off is for good once the hold ended.
func (le *lease) setRenew(on bool) {
	le.renew = on
	le.plan()
}

// due is the next moment at which the keeper has to look at the lock; false if
// there is none.
func (le *lease) due() (at time.Duration, ok bool) {
	switch {
	case le.phase == phaseUnreleased, le.phase == phaseHeld && (le.extending || le.next == 0),
		le.phase == phaseReleasing && le.reason == "" && !le.overdue:
		return le.end, true
	case le.phase == phaseHeld:
		return min(le.next, le.end), true
	}
	return 0, false
}

// lose ends the hold. It reports true, so that callers can return it.
func (le *lease) lose(at time.Duration, reason Reason) bool {
	le.phase, le.reason = phaseLost, reason
	if le.stopped == 0 {
		le.stopped = at
	}
	return true
}

// observe lets time pass. It reports whether the lock was lost by it.
func (le *lease) observe(now time.Duration) bool {
	if now < le.end {
		return false
	}
	switch {
	case le.phase == phaseUnreleased:
		return le.lose(le.end, ReasonRelease)
	case le.phase != phaseHeld:
		return false // while a release is on its way, its answer decides
	case le.holdEnd != 0 && le.end == le.holdEnd:
		return le.lose(le.end, ReasonMaxHold)
	case le.extending:
		return le.lose(le.end, ReasonLateExtend)
	case le.cause != nil:
		return le.lose(le.end, ReasonExtendFailed)
	}
	return le.lose(le.end, ReasonExpired)
}

// expireRelease reports, once, that the lease has ended while a release is on its
// way: its answer decides about the lock, but others may have the key by now.
func (le *lease) expireRelease(now time.Duration) bool {
	if le.phase != phaseReleasing || le.reason != "" || le.overdue || now < le.end {
		return false
	}
	le.overdue = true
	return true
}

// extendStep is what to do about a wish to extend.
type extendStep uint8

const (
	extendSend extendStep = iota // send a request for the lease that was returned
	extendNone                   // nothing to gain: the lease already runs to the hold deadline
	extendLost                   // the lock is lost, by this call if lost is true
	extendOver                   // the lock is released, or being released
)

// extendStart is called before an extension is sent. ask is the lease to ask
// for: ttl, or less so that it does not pass the hold deadline.
func (le *lease) extendStart(now, ttl time.Duration) (ask time.Duration, step extendStep, lost bool) {
	lost = le.observe(now)
	switch {
	case le.state() == StateLost:
		return 0, extendLost, lost
	case le.phase != phaseHeld:
		return 0, extendOver, false
	}
	ask = ttl
	if le.holdEnd != 0 {
		left := le.holdEnd - now
		if left < minDuration {
			return 0, extendLost, le.lose(now, ReasonMaxHold)
		}
		if trusted(ask) >= left {
			if le.end >= le.holdEnd {
				le.ttl = ttl
				return 0, extendNone, false
			}
			ask = min(ask, reaching(left))
		}
	}
	le.ttl = ttl
	le.extending, le.asked = true, ask
	// From here on a shorter lease than the present one may be stored, whenever
	// the answer comes.
	le.end = min(le.end, now+trusted(ask))
	return ask, extendSend, false
}

// extendDone takes in the answer to the request of ask that left at sent. It
// reports whether the lock has a new lease, or was lost by this.
func (le *lease) extendDone(now, sent, ask time.Duration, ours bool, err error) (extended, lost bool) {
	lost = le.observe(now) // while extending is set: that is the reason
	le.extending = false
	if lost {
		return false, true
	}
	if le.phase != phaseHeld {
		return false, false // a release overtook it: the answer changes nothing
	}
	switch {
	case err != nil:
		// The request may still be applied, now or much later. A shorter lease
		// than the present one counts from when it left, and no later lease can
		// be relied on for longer than that one would last.
		le.cause = err
		le.end = min(le.end, sent+trusted(ask))
		le.lower(ask)
		if le.plan(); le.next != 0 {
			le.next = now + le.interval()/3
		}
	case !ours:
		return false, le.lose(now, ReasonExtend)
	default:
		span := ask
		if le.ceiling > 0 {
			span = min(span, le.ceiling)
		}
		le.sent, le.end, le.cause = sent, sent+trusted(span), nil
		le.extending = true // a lease shorter than its answer took is lost by that
		if le.holdEnd != 0 {
			le.end = min(le.end, le.holdEnd)
		}
		le.plan()
	}
	lost = le.observe(now)
	le.extending = false
	return err == nil && !lost, lost
}

// lower notes that an extension for ask has no answer.
func (le *lease) lower(ask time.Duration) {
	if le.ceiling == 0 || ask < le.ceiling {
		le.ceiling = ask
	}
}

// checkDone takes in whether the backend still has the key in our name.
func (le *lease) checkDone(now time.Duration, ours bool) (lost bool) {
	if le.observe(now) {
		return true
	}
	return le.phase == phaseHeld && !ours && le.lose(now, ReasonObserved)
}

// releaseStep is what to do about a wish to release.
type releaseStep uint8

const (
	releaseSend   releaseStep = iota // send a request
	releaseKeep                      // send an extension to keep, so that the key stays for HoldAtLeast
	releaseShared                    // a request is on its way: wait for it
	releaseOver                      // nothing to send
)

// releaseStart is called before a release is sent. With releaseKeep, keep is
// the lease to ask for.
func (le *lease) releaseStart(now time.Duration) (step releaseStep, keep time.Duration, lost bool) {
	lost = le.observe(now)
	switch {
	case le.phase == phaseReleasing:
		return releaseShared, 0, false
	case le.settled:
		return releaseOver, 0, lost
	}
	le.phase = phaseReleasing
	if le.stopped == 0 {
		le.stopped = now
	}
	if keep = le.keepEnd - now; keep > 0 {
		return releaseKeep, keep, lost
	}
	return releaseSend, 0, lost
}

// releaseDone takes in the answer to a release. again says that an earlier
// request had no answer, so that "not ours" may be its work. It reports whether
// the lock was lost by this.
func (le *lease) releaseDone(now time.Duration, ours, again bool, err error) (lost bool) {
	le.settled = err == nil
	switch {
	case le.reason != "" && err != nil:
		le.phase = phaseLost
	case le.reason != "":
		le.phase = phaseReleased // the loss stays on record
	case err != nil:
		le.phase, le.cause = phaseUnreleased, err
		return le.observe(now)
	case ours || again:
		le.phase = phaseReleased
	default:
		return le.lose(now, ReasonRelease)
	}
	return false
}

// detach ends the hold without a release.
func (le *lease) detach(now time.Duration) (ok, lost bool) {
	lost = le.observe(now)
	if le.phase != phaseHeld {
		return false, lost
	}
	le.phase, le.settled, le.stopped = phaseReleased, true, now
	if le.extending { // nobody waits for its answer any more
		le.lower(le.asked)
	}
	return true, false
}

// heldFor is the length of the hold until now or its end.
func (le *lease) heldFor(now time.Duration) time.Duration {
	if le.stopped != 0 {
		now = le.stopped
	}
	return max(now-le.granted, 0)
}

// remaining is for how long the lease surely still runs.
func (le *lease) remaining(now time.Duration) time.Duration {
	if le.phase != phaseHeld {
		return 0
	}
	return max(le.end-now, 0)
}
