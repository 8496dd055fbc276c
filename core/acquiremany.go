package locco

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AcquireMany takes a set of keys: all, or none. Duplicates are taken once. The
// keys are taken in the order of their bytes, one by one, so that overlapping
// sets cannot deadlock, or in one atomic step where the backend can and no key
// is wanted by others of this locker. The retry timeout is one budget for the
// whole set, the retry count one for each key. Locks taken early are extended
// while later ones are waited for, and all of them before the set is returned.
//
// When a key cannot be had, those taken are released, whatever [HoldAtLeast] says,
// and the error, which is as for [Locker.Acquire], names that key; a driver's error
// of the atomic step is about all of them and comes as it is.
func (lr *Locker) AcquireMany(ctx context.Context, keys []string, ttl time.Duration, opts ...CallOption) (*LockSet, error) {
	return lr.acquireMany(ctx, keys, ttl, false, opts)
}

func (lr *Locker) acquireMany(ctx context.Context, keys []string, ttl time.Duration, scoped bool, opts []CallOption) (*LockSet, error) {
	locks, err := lr.prepareMany(ctx, keys, ttl, opts)
	if err != nil {
		return nil, err
	}
	for _, l := range locks {
		l.scoped = scoped
	}
	e, began := lr.e, time.Now()
	granted, unanswered, err := e.acquireTogether(ctx, locks)
	if err != nil {
		return nil, err
	}
	if !granted {
		if err := e.acquireInTurn(ctx, locks, began, unanswered); err != nil {
			return nil, err
		}
	}
	return newLockSet(locks), nil
}

// prepareMany checks the arguments and makes a lock for each distinct key.
func (lr *Locker) prepareMany(ctx context.Context, keys []string, ttl time.Duration, opts []CallOption) ([]*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	s, err := lr.merge(ttl, opts)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, &ValidationError{Field: "keys", Value: keys, Rule: "must not be empty"}
	}
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = lr.e.prefix + key
		if err := checkKey(full[i]); err != nil {
			return nil, err
		}
	}
	if lr.e.closed.Load() {
		return nil, ErrClosed
	}
	slices.Sort(full)
	full = slices.Compact(full)
	if ctx.Err() != nil {
		return nil, newWaitError(ctx, full[0], nil)
	}
	locks := make([]*Lock, len(full))
	for i, key := range full {
		if locks[i], err = lr.e.newLock(key, ttl, s); err != nil {
			return nil, err
		}
	}
	return locks, nil
}

// manyAnswer is the answer to an attempt on a whole set.
type manyAnswer struct {
	answer
	grants  []Grant
	refused int
}

// acquireTogether tries once to take the whole set in one step. Without a grant
// and an error, the keys are to be taken one by one; unanswered is then 1 if
// this attempt may have stored them.
func (e *engine) acquireTogether(ctx context.Context, locks []*Lock) (granted bool, unanswered int, err error) {
	if len(locks) < 2 || !e.able.manyAcquirer.on.Load() || e.anyLocal(locks) {
		return false, 0, nil
	}
	began := time.Now()
	failed := func(err error) error {
		first := locks[0]
		e.emit(Event{
			Kind: EventAcquireFailed, Key: first.key, TTL: first.askTTL,
			Err: err, Waited: time.Since(began), Attempts: 1,
		})
		return err
	}
	m, answered := attend(ctx, e,
		func() manyAnswer { return e.lookMany(ctx, locks) },
		func(m manyAnswer) {
			if m.verdict == lookGranted || m.perhapsStored() {
				e.giveBackAll(ctx, locks)
			}
		})
	switch {
	case !answered, ctx.Err() != nil && m.verdict != lookGranted:
		if answered && m.perhapsStored() {
			e.cleanUp(func() { e.giveBackAll(ctx, locks) })
		}
		return false, 0, failed(newWaitError(ctx, locks[0].key, nil))
	case m.verdict == lookGranted:
		for _, l := range locks {
			e.enterOwner(l)
		}
		for i, l := range locks {
			a := m.answer
			a.grant = m.grants[i]
			if err := e.accept(ctx, l, a, e.now(), 0, 1, false); err != nil {
				e.dropAll(ctx, locks[:i])
				rest := locks[i+1:]
				e.cleanUp(func() { eachAtOnce(e, rest, func(_ int, l *Lock) { e.passOn(ctx, l) }) })
				return false, 0, err
			}
		}
		return true, 0, nil
	case m.verdict == lookHeld:
		e.emit(Event{
			Kind: EventContended, Key: locks[m.refused].key, TTL: locks[m.refused].askTTL,
			Attempts: 1, Elapsed: m.answered - m.sent, Reason: ReasonHeld,
		})
		return false, 0, nil
	case errors.Is(m.err, errors.ErrUnsupported): // for this set: its keys are on several servers
		return false, 0, nil
	case e.passing(m.answer):
		return false, 1, nil
	}
	if m.perhapsStored() {
		e.cleanUp(func() { e.giveBackAll(ctx, locks) })
	}
	return false, 0, failed(m.err)
}

func (e *engine) lookMany(ctx context.Context, locks []*Lock) (m manyAnswer) {
	leases := make([]Lease, len(locks))
	for i, l := range locks {
		leases[i] = e.leaseFor(l, l.askTTL)
	}
	now := time.Now()
	call := newCallContext(ctx, now, e.callLimit(locks[0].askTTL))
	defer call.finish()
	m.sent = e.at(now)
	m.grants, m.refused, m.err = e.able.manyAcquirer.impl.AcquireMany(call, leases)
	if errors.Is(m.err, errors.ErrUnsupported) {
		m.verdict = lookInvalid
		return m
	}
	m.grant.OK = m.err == nil && m.refused < 0
	if m.grant.OK && len(m.grants) != len(locks) || m.refused >= len(locks) {
		m.grant.OK = false
		m.err = fmt.Errorf("locco: the backend answered %d grants, refused %d, for %d keys", len(m.grants), m.refused, len(locks))
	}
	if e.fencing && m.grant.OK { // judged together: one bad fence spoils the set
		m.grant.Fence = m.grants[0].Fence
		for _, g := range m.grants {
			if g.Fence < 1 || g.Fence > maxFence {
				m.grant.Fence = g.Fence
			}
		}
	}
	e.judge(&m.answer, locks[0], call)
	return m
}

// anyLocal tells whether this locker holds or waits for one of the keys.
func (e *engine) anyLocal(locks []*Lock) bool {
	for _, l := range locks {
		sh := e.shard(l.key)
		sh.mu.Lock()
		_, there := sh.rooms[l.key]
		sh.mu.Unlock()
		if there {
			return true
		}
	}
	return false
}

// acquireInTurn takes the locks one by one. Those taken are renewed until all
// are there, whatever their options say; then each is refreshed, so that the
// leases overlap.
func (e *engine) acquireInTurn(ctx context.Context, locks []*Lock, began time.Time, unanswered int) error {
	for i, l := range locks {
		waiting, stop := ctx, context.CancelCauseFunc(func(error) {})
		if i > 0 {
			waiting, stop = bindAll(ctx, locks[:i]) // no use in waiting once one of them is lost
		}
		rest := locks[i+1:] // not tried one by one
		err := startable(waiting, l, began)
		if err == nil {
			err = e.acquire(waiting, l, time.Now(), began, unanswered)
		} else {
			rest = locks[i:]
			e.emit(Event{Kind: EventAcquireFailed, Key: l.key, TTL: l.askTTL, Err: err, Waited: time.Since(began)})
		}
		ended := context.Cause(waiting)
		stop(nil)
		if err != nil {
			e.dropAll(ctx, locks[:i])
			if unanswered > 0 {
				e.cleanUp(func() { e.giveBackAll(ctx, rest) })
			}
			if lost := firstLost(locks[:i]); lost != nil && ctx.Err() == nil {
				return lost
			}
			if ended != nil && ctx.Err() == nil { // by Close: err looks like the end of the caller's context
				err = ended
			}
			return nameKey(l.key, err)
		}
		l.setRenewal(true)
	}
	if len(locks) > 1 {
		if err := e.refreshAll(ctx, locks, began); err != nil {
			e.dropAll(ctx, locks)
			return err
		}
	}
	for _, l := range locks {
		l.setRenewal(l.settings.autoExtend)
	}
	return nil
}

// refreshAll extends the locks of a set whose keys all were granted. What passes by itself
// is tried again within the budget, like a look at one more key (spec 2.5, 3.7).
func (e *engine) refreshAll(ctx context.Context, locks []*Lock, began time.Time) error {
	policy := &locks[0].settings.retry
	started, delay := time.Now(), time.Duration(0)
	for attempt := 1; ; attempt++ {
		err := e.extendAll(ctx, locks, locks[0].askTTL)
		if err == nil || !e.allPass(err) || ctx.Err() != nil || firstLost(locks) != nil || attempt > policy.Retries && policy.Retries != Unlimited {
			return err
		}
		delay = policy.next(attempt, time.Since(started), delay)
		if policy.Timeout > 0 && time.Since(began)+delay >= policy.Timeout {
			return err
		}
		waiting, stop := bindAll(ctx, locks)
		select {
		case <-time.After(delay):
		case <-waiting.Done(): // the next attempt says why
		}
		stop(nil)
		if e.closed.Load() {
			return nameKey(locks[0].key, ErrClosed)
		}
	}
}

// allPass tells whether each error of a set is one that passes by itself.
func (e *engine) allPass(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if !e.allPass(err) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, ErrLate) || e.able.retryer != nil && e.able.retryer.Retryable(err)
}

// startable says why a lock of a set is not even tried; nil if it is.
func startable(waiting context.Context, l *Lock, began time.Time) error {
	timeout, elapsed := l.settings.retry.Timeout, time.Since(began)
	switch {
	case waiting.Err() != nil:
		return newWaitError(waiting, l.key, nil)
	case timeout > 0 && elapsed >= timeout:
		return &LateError{Key: l.key, Elapsed: elapsed, Err: errBudget}
	}
	return nil
}

// errBudget marks the LateError of a key that was not looked at.
var errBudget = errors.New("the retry timeout of the set passed before")

func firstLost(locks []*Lock) error {
	for _, l := range locks {
		if lost := l.lost(); lost != nil {
			return lost
		}
	}
	return nil
}

// dropAll releases locks that no caller will get, in the background if the
// caller's context has ended: it gets its error at once.
func (e *engine) dropAll(ctx context.Context, locks []*Lock) {
	if len(locks) == 0 {
		return
	}
	for _, l := range locks { // nobody did the work that HoldAtLeast is about
		l.mu.Lock()
		l.lease.keepEnd = 0
		l.mu.Unlock()
	}
	if ctx.Err() != nil {
		e.cleanUp(func() { _ = releaseAll(ctx, locks) }) // events report failures
		return
	}
	_ = releaseAll(ctx, locks)
}

func (e *engine) giveBackAll(ctx context.Context, locks []*Lock) {
	eachAtOnce(e, locks, func(_ int, l *Lock) { e.giveBack(ctx, l) })
}

// nameKey adds the key to an error that does not name it.
func nameKey(key string, err error) error {
	if err == nil || errors.Is(err, ErrHeld) || errors.Is(err, ErrLate) || errors.Is(err, ErrLost) {
		return err
	}
	return &keyError{key, err}
}
