package locco

import "time"

// room is what a locker knows about a key that somebody of it holds, looks at or
// waits for. One look at a time is made on behalf of all who wait (spec 3.5).
// The shard's mutex guards it.
type room struct {
	key    string
	owner  *Lock // the lock of this locker that holds the key
	looker *Lock // for whom an attempt or a hand-over is under way

	head, tail *waiter // in order of arrival
	waiting    int
	due        []*waiter // those whose timetable the look under way, or the next one, serves

	lookWanted bool // look as soon as nobody holds or looks
	timedLook  bool // the look that is wanted, or under way, came from a timetable
	held       bool // the last answer was that somebody has the key
	late       bool // the last look had no usable answer
	lastErr    error
	lookBy     time.Time     // look by then without being woken: the holder's lease ends; zero: not known
	prompted   bool          // a wake-up came, or a lease ended, and no look since had an answer
	urge       time.Duration // how long after a look without an answer it is then repeated
	paced      time.Time     // when the last look of a timetable was asked for
	streak     int           // releases in a row whose key went to this locker again

	shared bool // referred to from outside the map
	left   bool // not in the map any more
	watch  watch
}

// The repetitions of a look that was to answer a wake-up.
const (
	firstUrge = 50 * time.Millisecond
	maxUrge   = time.Second
)

// watch is the room's subscription to the backend's wake-ups.
type watch struct {
	wake   <-chan struct{}
	stop   func()
	asked  bool // set-up is under way or done
	failed bool // set-up failed: tried again after the next refusal
}

// signal makes w look at its room again.
func (w *waiter) signal() {
	select {
	case w.awake <- struct{}{}:
	default:
	}
}

func (r *room) push(w *waiter, front bool) {
	r.shared = true
	w.room = r
	r.waiting++
	switch {
	case r.head == nil:
		r.head, r.tail = w, w
	case front:
		w.next, r.head.prev = r.head, w
		r.head = w
	default:
		w.prev, r.tail.next = r.tail, w
		r.tail = w
	}
}

// remove takes w out of the queue. The next in line takes over what the head
// does for all.
func (r *room) remove(w *waiter) {
	if w.gone {
		return
	}
	w.gone = true
	r.waiting--
	wasHead := r.head == w
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		r.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		r.tail = w.prev
	}
	w.prev, w.next = nil, nil
	if wasHead && r.head != nil {
		r.head.signal()
	}
}

// unwatch returns the function that ends the watch if nobody waits any more. It
// is called without the mutex.
func (r *room) unwatch() (stop func()) {
	if r.head != nil || r.watch.stop == nil {
		return nil
	}
	stop = r.watch.stop
	r.watch = watch{}
	return stop
}

// want asks for a look as soon as one can be made. A call whose first look is
// under way may be refused and queue: its refusal is then older than this.
func (r *room) want() {
	if r.head == nil && r.looker == nil {
		return
	}
	r.lookWanted, r.timedLook = true, false
	if r.head != nil {
		r.head.signal()
	}
}

// looked notes that the look, or hand-over, that was under way is over. Who has
// become the first in line meanwhile is yet to do what the first does for all.
func (r *room) looked() {
	r.looker = nil
	if r.head != nil {
		r.head.signal()
	}
}

// known tells whether there was a look, and what it came to.
func (r *room) known() bool { return r.held || r.late || r.lastErr != nil }

// last is what a call comes to that must not overtake those who wait: the answer
// of their last look. While there is none, somebody else is about to have the key.
func (r *room) last() answer {
	switch {
	case r.owner == nil && r.late:
		return answer{verdict: lookLate, err: r.lastErr}
	case r.owner == nil && r.lastErr != nil:
		return answer{verdict: lookFailed, err: r.lastErr}
	}
	return answer{verdict: lookHeld}
}

// took notes that l has the key.
func (r *room) took(l *Lock) {
	r.owner = l
	r.lookWanted, r.timedLook, r.held, r.late, r.lastErr = false, false, true, false, nil
	r.lookBy, r.prompted, r.urge = time.Time{}, false, 0
	r.refuseDue()
}

// give makes w the owner.
func (r *room) give(w *waiter, a answer) {
	r.remove(w)
	r.took(w.lock)
	w.answer, w.granted = a, true
	w.signal()
}

// refuseDue tells those whose timetable the last look served that it granted
// them nothing.
func (r *room) refuseDue() {
	for _, w := range r.due {
		if w.due && !w.gone {
			w.due, w.point = false, time.Time{}
			w.signal()
		}
	}
	clear(r.due)
	r.due = r.due[:0]
}

// leftover is what remains to do, without the mutex, about the token of a
// waiter that left before its answer came.
type leftover uint8

const (
	nothingLeft leftover = iota
	passItOn             // it holds the key
	undoIt               // it may hold the key
)

// settle takes in the answer to a look that was made for w.
func (r *room) settle(e *engine, w *waiter, a answer) leftover {
	r.looked()
	w.looks++
	w.queued = w.queued || a.verdict != lookGranted
	if a.perhapsStored() {
		w.unanswered++
	}
	if a.verdict == lookGranted {
		if w.gone {
			r.looker = w.lock // nobody looks until it is passed on
			return passItOn
		}
		r.give(w, a)
		return nothingLeft
	}
	if !e.passing(a) { // its alone: the next one looks for itself
		if !w.gone { // else the call has returned its error
			w.err = a.err
		}
		w.signal()
		r.remove(w)
		r.want()
	} else {
		if a.verdict == lookHeld {
			r.streak = 0
		}
		r.held, r.late, r.lastErr = a.verdict == lookHeld, a.verdict == lookLate, a.err
		r.lookBy = time.Time{}
		switch {
		case a.grant.Left > 0:
			r.lookBy = time.Now().Add(a.grant.Left)
		case !r.held && r.prompted: // the next point of a timetable may be far
			r.urge = min(max(2*r.urge, firstUrge), maxUrge)
			r.lookBy = time.Now().Add(r.urge)
		}
		if r.held {
			r.prompted, r.urge = false, 0
		}
		if r.watch.failed {
			r.watch = watch{}
		}
		w.contended, w.contendedErr = ReasonHeld, a.err
		if a.verdict != lookHeld {
			w.contended = ReasonLate
		}
		r.refuseDue()
		w.signal()
	}
	if w.gone && w.unanswered > 0 {
		return undoIt
	}
	return nothingLeft
}

// settleTransfer takes in the answer to a hand-over from a lock to w.
func (r *room) settleTransfer(from *Lock, w *waiter, a answer) leftover {
	r.looked()
	if r.owner == from && a.verdict != lookInvalid { // else nothing was done, and a release follows
		r.owner = nil
	}
	switch {
	case a.verdict == lookGranted && w.gone:
		r.looker = w.lock
		return passItOn
	case a.verdict == lookGranted:
		r.streak++
		r.give(w, a)
		return nothingLeft
	case a.perhapsStored():
		w.unanswered++
		if w.gone {
			return undoIt // and then the next one looks
		}
	}
	if r.owner == nil {
		r.want()
	}
	if w.gone && w.unanswered > 0 { // refused, but earlier attempts had no answer
		return undoIt
	}
	return nothingLeft
}
