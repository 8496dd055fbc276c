package locco

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// clockCheck is how often the clock is looked at while locks are held: a
	// suspended machine stands its timers still, so that a lease can be over
	// long before its timer fires (spec 5.3).
	clockCheck = time.Second

	// batchSize bounds what one call of ManyExtender is given.
	batchSize = 500

	never = time.Duration(1<<63 - 1)
)

// keeper extends locks and notices when their leases end. It has one timer for
// all of them and no goroutine at rest. Its heap is also the list of the locks
// that are held.
type keeper struct {
	e *engine

	mu     sync.Mutex // guards the rest, and the last group of every lock's fields; taken under a lock's mutex
	locks  alarms
	peak   int
	timer  *time.Timer
	armed  time.Time // when the timer fires, by its own clock; zero: it does not
	closed bool
}

// alarms is a heap of locks by the moment at which each has to be looked at.
type alarms []*Lock

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm < a[j].alarm }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (a *alarms) Push(x any) {
	l := x.(*Lock)
	l.index = len(*a)
	*a = append(*a, l)
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	l := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	l.index = -1
	return l
}

// add begins to keep l; false if the locker was closed.
func (k *keeper) add(l *Lock, now time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	l.alarm, l.early = l.nextAlarm()
	k.push(l, now)
	return true
}

func (k *keeper) push(l *Lock, now time.Duration) {
	l.kept = true
	heap.Push(&k.locks, l)
	k.peak = max(k.peak, len(k.locks))
	k.arm(now)
}

// reset follows a change of the lease of l. It is called with the lock's mutex.
func (k *keeper) reset(l *Lock, now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.alarm, l.early = l.nextAlarm()
	switch {
	case !l.kept: // not added yet
		return
	case l.index < 0 && l.alarm == 0:
		return
	case l.index < 0: // a failed release: its lease still ends
		k.push(l, now)
		return
	case l.alarm != 0:
		heap.Fix(&k.locks, l.index)
		k.arm(now)
		return
	}
	heap.Remove(&k.locks, l.index)
	const few = 1024
	if k.peak > few && len(k.locks) < k.peak/8 { // give back what a burst took
		k.locks = append(make(alarms, 0, 2*len(k.locks)), k.locks...)
		k.peak = len(k.locks)
	}
}

// nextAlarm is when the lease wants to be looked at, and how much earlier it may
// be; 0 if never. It is called with the lock's mutex.
func (l *Lock) nextAlarm() (at, early time.Duration) {
	at, ok := l.lease.due()
	if !ok {
		return 0, 0
	}
	if at < l.lease.end {
		early = l.lease.early()
	}
	return at, early
}

// arm sets the timer if it would fire too late.
func (k *keeper) arm(now time.Duration) {
	if len(k.locks) == 0 {
		return
	}
	wait := min(k.locks[0].alarm-now, clockCheck)
	if wait == clockCheck && !k.armed.IsZero() {
		return // no timer is ever set for longer
	}
	// The timer's clock may stand still while the holder's goes on: so the two
	// are never compared.
	fires := time.Now().Add(wait)
	if !k.armed.IsZero() && !fires.Before(k.armed) {
		return
	}
	k.armed = fires
	if k.timer == nil {
		k.timer = time.AfterFunc(wait, k.ring)
	} else {
		k.timer.Reset(wait)
	}
}

// ring looks at the locks whose moment has come. It runs on the timer's
// goroutine.
func (k *keeper) ring() {
	now := k.e.now()
	var due []*Lock
	k.mu.Lock()
	grouped := k.e.able.manyExtender.on.Load()
	for len(k.locks) > 0 {
		l := k.locks[0]
		if early := l.early; l.alarm > now && (!grouped || len(due) == 0 || l.alarm > now+early) {
			break
		}
		due = append(due, l)
		l.alarm = never // until it was looked at
		heap.Fix(&k.locks, 0)
	}
	k.armed = time.Time{}
	k.arm(now)
	k.mu.Unlock()

	var extensions []extension
	var lostLocks []*Lock
	for _, l := range due {
		l.mu.Lock()
		lost := l.lease.observe(now)
		if next := l.lease.next; !lost && l.lease.phase == phaseHeld && !l.lease.extending &&
			next != 0 && next <= now+l.lease.early() {
			ask, step, gone := l.lease.extendStart(now, l.lease.ttl)
			if lost = gone; step == extendSend {
				extensions = append(extensions, extension{l, ask})
			}
		}
		overdue := l.lease.expireRelease(now)
		k.reset(l, now)
		var end signals
		if lost {
			end = l.loseNow(now)
			lostLocks = append(lostLocks, l)
		}
		l.mu.Unlock()
		end.fire()
		if overdue {
			k.e.vacate(l, 0, 0) // those who wait look, whatever becomes of the release
		}
	}
	k.e.send(extensions)
	for _, l := range lostLocks { // last: hooks may take their time
		l.deliver()
	}
}

// extension is a request for a new lease that extendStart allowed.
type extension struct {
	lock *Lock
	ask  time.Duration
}

// send sends extensions, without waiting for their answers where that may take
// time.
func (e *engine) send(extensions []extension) {
	if e.able.immediate {
		e.extendNow(context.Background(), extensions) // events report the answers
		return
	}
	for _, batch := range e.batches(extensions) {
		e.goBackground(func() { e.extendNow(context.Background(), batch) })
	}
}

// extendNow sends extensions, all at once, and waits for their answers; the
// errors are in no order.
func (e *engine) extendNow(ctx context.Context, extensions []extension) []error {
	errs := e.extendEach(ctx, extensions)
	for _, x := range extensions { // when all answers are taken in: hooks may take their time
		x.lock.deliver()
	}
	return errs
}

// extendEach is extendNow, but deliver is to follow.
func (e *engine) extendEach(ctx context.Context, extensions []extension) []error {
	batches := e.batches(extensions)
	errs := make([][]error, len(batches))
	eachAtOnce(e, batches, func(i int, batch []extension) { errs[i] = e.extendBatch(ctx, batch) })
	return slices.Concat(errs...)
}

// batches parts extensions into those that share a call: all whose call may
// take equally long, where the backend takes several, else one each.
func (e *engine) batches(extensions []extension) [][]extension {
	size := batchSize
	if !e.able.manyExtender.on.Load() {
		size = 1
	}
	slices.SortStableFunc(extensions, func(a, b extension) int {
		return cmp.Compare(e.callLimit(a.ask), e.callLimit(b.ask))
	})
	var batches [][]extension
	for len(extensions) > 0 {
		n, limit := 1, e.callLimit(extensions[0].ask)
		for n < min(size, len(extensions)) && e.callLimit(extensions[n].ask) == limit {
			n++
		}
		batches = append(batches, extensions[:n])
		extensions = extensions[n:]
	}
	return batches
}

// extendOne makes one extension and takes in its answer. The error is what
// [Lock.Extend] returns. deliver is to follow.
func (e *engine) extendOne(values context.Context, x extension) error {
	if err := x.lock.leaving(); err != nil {
		return err
	}
	now := time.Now()
	call := newCallContext(values, now, e.callLimit(x.ask))
	sent := e.at(now)
	defer call.finish()
	answered := false
	defer func() {
		if !answered { // the backend panics: the next extension must not wait for this one
			_ = x.lock.extended(sent, x.ask, false, errPanicked)
		}
	}()
	ours, err := e.backend.Extend(call, e.leaseFor(x.lock, x.ask))
	answered = true
	return x.lock.extended(sent, x.ask, ours, callError(call, x.lock.key, err))
}

// extendBatch makes several extensions in one call and takes in their answers.
// The errors are those of extendOne with their keys, in no order. deliver is to
// follow.
func (e *engine) extendBatch(values context.Context, batch []extension) []error {
	if len(batch) == 1 {
		return []error{nameKey(batch[0].lock.key, e.extendOne(values, batch[0]))}
	}
	var errs []error
	batch = slices.DeleteFunc(slices.Clone(batch), func(x extension) bool {
		err := x.lock.leaving()
		if err != nil {
			errs = append(errs, nameKey(x.lock.key, err))
		}
		return err != nil
	})
	if len(batch) == 0 {
		return errs
	}
	leases := make([]Lease, len(batch))
	for i, x := range batch {
		leases[i] = e.leaseFor(x.lock, x.ask)
	}
	now := time.Now()
	call := newCallContext(values, now, e.callLimit(batch[0].ask))
	sent := e.at(now)
	answered := false
	defer func() {
		for _, x := range batch {
			if !answered {
				_ = x.lock.extended(sent, x.ask, false, errPanicked)
			}
		}
	}()
	verdicts := e.able.manyExtender.impl.ExtendMany(call, leases)
	answered = true
	var alone []extension
	for i, x := range batch {
		v := Verdict{Err: errNoVerdict}
		if i < len(verdicts) {
			v = verdicts[i]
		}
		if errors.Is(v.Err, errors.ErrUnsupported) {
			alone = append(alone, x)
			continue
		}
		err := x.lock.extended(sent, x.ask, v.OK, callError(call, x.lock.key, v.Err))
		errs = append(errs, nameKey(x.lock.key, err))
	}
	call.finish()
	if len(alone) > 0 {
		missing := e.able.manyExtender.turnOff()
		errs = append(errs, e.extendEach(values, alone)...)
		if missing { // last: a hook may take its time
			e.emit(Event{Kind: EventNotice, Err: errors.ErrUnsupported})
		}
	}
	return errs
}

// held returns the locks that are kept.
func (k *keeper) held() []*Lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*Lock(nil), k.locks...)
}

// close refuses further locks.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
}
