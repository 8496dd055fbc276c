package locco

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Lock is a lock in hand: the right to a key until it is released or lost.
//
// All methods are safe for concurrent use. From the moment at which the lease
// could end, every method says that the lock is lost, whatever the driver does.
// On a nil Lock, State is StateReleased, Err and Extend say [ErrReleased],
// Lost is closed, Bind returns a context that has ended, and Release does
// nothing.
type Lock struct {
	e        *engine
	settings *settings // shared; not changed
	key      string
	token    string
	askTTL   time.Duration // of the acquisition
	fence    int64
	waited   time.Duration
	attempts int

	scoped bool // a callback's: its end releases it

	mu         sync.Mutex // guards all below but the last group; never held over a call or a hook
	lease      lease
	lostErr    error         // set once, by the loss
	lostChan   chan struct{} // made by Lost
	onLoss     []func()      // of sets
	bound      *binding      // the first of a list
	extendWait chan struct{} // closed by endExtendWait; made by who waits
	shared     *sharedResult // the release under way, if somebody else waits for it
	events     []Event       // to be delivered, in order
	delivering bool

	releaseFailed bool

	// guarded by the keeper's mutex
	alarm time.Duration
	early time.Duration
	index int  // in the heap; -1: not in it
	kept  bool // was added once

	// The contexts of the first look and of the first release: a driver may hold
	// on to one after its call, so each is used once.
	acquireCall, releaseCall callContext
}

// sharedResult is that of a release that several callers wait for.
type sharedResult struct {
	done chan struct{}
	err  error
}

// Key returns the key with the locker's prefix; "" on a nil Lock.
func (l *Lock) Key() string {
	if l == nil {
		return ""
	}
	return l.key
}

// Token returns the token that the backend stores: 32 lower-case hex digits
// unless [WithTokenFunc] says otherwise. Whoever knows it can extend and release
// the lock.
func (l *Lock) Token() string {
	if l == nil {
		return ""
	}
	return l.token
}

// Fence returns the fencing token of the grant: larger than that of every
// earlier grant of the key, below 2^53. It is 0 without [WithFencing].
func (l *Lock) Fence() int64 {
	if l == nil {
		return 0
	}
	return l.fence
}

// TTL returns the lease that was asked for last, by the acquisition or by
// Extend.
func (l *Lock) TTL() time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.ttl
}

// Retry returns the retry policy of the acquisition, merged from the built-in
// one, the locker's and the call's.
func (l *Lock) Retry() RetryPolicy {
	if l == nil {
		return RetryPolicy{}
	}
	return l.settings.retry
}

// Waited returns how long the acquisition waited. It is 0 exactly when the first
// look granted the lock without queueing: otherwise somebody may have held the key
// meanwhile and done the work already. In a set it counts from the start of the
// whole acquisition.
func (l *Lock) Waited() time.Duration {
	if l == nil {
		return 0
	}
	return l.waited
}

// Attempts returns how many looks the acquisition took, shared ones included.
func (l *Lock) Attempts() int {
	if l == nil {
		return 0
	}
	return l.attempts
}

// State tells whether the lock is held, lost or released now.
func (l *Lock) State() State {
	if l == nil {
		return StateReleased
	}
	var state State
	l.read(func(time.Duration) { state = l.lease.state() })
	return state
}

// Err returns nil while the lock is held, a [*LostError] once it is lost, also
// after its release, and [ErrReleased] after a release that found it ours.
func (l *Lock) Err() error {
	if l == nil {
		return ErrReleased
	}
	var err error
	l.read(func(time.Duration) { err = l.errNow() })
	return err
}

// errNow is Err with the mutex.
func (l *Lock) errNow() error {
	switch {
	case l.lostErr != nil:
		return l.lostErr
	case l.lease.phase == phaseHeld:
		return nil
	}
	return ErrReleased
}

// Reason returns why the lock was lost, or "".
func (l *Lock) Reason() Reason {
	if l == nil {
		return ""
	}
	var reason Reason
	l.read(func(time.Duration) { reason = l.lease.reason })
	return reason
}

// HeldFor returns how long the lock has been held. It stops when the lock is
// lost or released.
func (l *Lock) HeldFor() time.Duration {
	if l == nil {
		return 0
	}
	var held time.Duration
	l.read(func(now time.Duration) { held = l.lease.heldFor(now) })
	return held
}

// Remaining returns how long the lease surely still runs; 0 when the lock is not
// held.
func (l *Lock) Remaining() time.Duration {
	if l == nil {
		return 0
	}
	var left time.Duration
	l.read(func(now time.Duration) { left = l.lease.remaining(now) })
	return left
}

// HoldDeadline returns when the hold limit ends the lock (see [AutoExtend]). It
// is the zero Time when there is none.
func (l *Lock) HoldDeadline() time.Time {
	if l == nil {
		return time.Time{}
	}
	var deadline time.Time
	l.read(func(now time.Duration) {
		if l.lease.holdEnd != 0 {
			deadline = time.Now().Add(l.lease.holdEnd - now)
		}
	})
	return deadline
}

// read runs f with the mutex after the clock was looked at, so that no reader
// sees a lock held whose lease has ended (spec 1.5).
func (l *Lock) read(f func(now time.Duration)) {
	now := l.e.now()
	l.mu.Lock()
	if !l.lease.observe(now) {
		f(now)
		l.mu.Unlock()
		return
	}
	end := l.loseNow(now)
	f(now)
	l.mu.Unlock()
	end.fire()
	l.deliver()
}

// Check asks the backend whether the key is still ours. When it is not, a held
// lock is lost with [ReasonObserved]. The error is nil when it is ours, matches
// [ErrLost] or [ErrReleased] when the lock is not held, and else is the
// driver's, after at most the call timeout. It says nothing about the next moment.
func (l *Lock) Check(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return newWaitError(ctx, l.key, nil)
	}
	return l.await(ctx, func() error { return l.check(ctx) })
}

// await is [engine.await] for a call about l. Its context may be one of Bind: then
// the end of the hold that the answer brings is the result, not the end of ctx.
func (l *Lock) await(ctx context.Context, f func() error) error {
	err := l.e.await(ctx, l.key, f)
	if err != nil {
		if lost := l.lost(); lost != nil {
			return lost
		}
	}
	return err
}

func (l *Lock) check(ctx context.Context) error {
	call := newCallContext(ctx, time.Now(), l.e.callTimeout)
	ours, err := l.e.backend.Holds(call, l.key, l.token)
	err = callError(call, l.key, err)
	call.finish()
	now := l.e.now()
	var end signals
	l.mu.Lock()
	if l.lease.checkDone(now, ours || err != nil) {
		end = l.loseNow(now)
		l.e.keeper.reset(l, now)
	}
	if over := l.errNow(); over != nil {
		err = over // it ended meanwhile, whatever the driver says
	}
	l.mu.Unlock()
	end.fire()
	l.deliver()
	return err
}

// loseNow follows a loss that the lease just reported: it makes the error, notes
// the event and returns what is to be done without the mutex.
func (l *Lock) loseNow(now time.Duration) signals {
	var cause error
	switch l.lease.reason {
	case ReasonExtendFailed, ReasonLateExtend, ReasonRelease:
		cause = l.lease.cause
	}
	l.lostErr = &LostError{Key: l.key, Reason: l.lease.reason, Err: cause}
	l.note(Event{
		Kind: EventLost, Key: l.key, TTL: l.lease.ttl,
		Held: l.lease.heldFor(now), Reason: l.lease.reason, Err: cause,
	})
	end := signals{lock: l, err: l.lostErr, lost: l.lostChan, onLoss: l.onLoss, bound: l.takeBound()}
	l.onLoss = nil
	l.endExtendWait()
	return end
}

// noteDirect is note for the event of a caller that can deliver it at once, which
// saves a copy on the heap: if it returns true, that caller calls deliverDirect
// instead of deliver.
func (l *Lock) noteDirect(ev Event) bool {
	if l.e.hook == nil || l.delivering || len(l.events) > 0 {
		l.note(ev)
		return false
	}
	l.delivering = true
	return true
}

func (l *Lock) deliverDirect(ev Event) {
	l.call(ev)
	l.mu.Lock()
	more := len(l.events) > 0 && !l.delivering
	l.mu.Unlock()
	if more {
		l.e.goBackground(l.deliver)
	}
}

// call calls the hook and then lets others do so, also when the hook ends its
// goroutine.
func (l *Lock) call(ev Event) {
	defer func() {
		l.mu.Lock()
		l.delivering = false
		l.mu.Unlock()
	}()
	l.e.emit(ev)
}

// note puts an event in line. It is called with the mutex; deliver follows
// without it.
func (l *Lock) note(ev Event) {
	if l.e.hook != nil {
		l.events = append(l.events, ev)
	}
}

// deliver calls the hook for the events in line, in order: while one goroutine
// is at it, others leave theirs to it. Those that come meanwhile are not left to
// this caller, whom a slow hook would keep for ever.
func (l *Lock) deliver() {
	if l.e.hook == nil {
		return
	}
	l.mu.Lock()
	for left := len(l.events); len(l.events) > 0 && !l.delivering; left-- {
		if left == 0 {
			l.mu.Unlock()
			l.e.goBackground(l.deliver)
			return
		}
		ev := l.events[0]
		if l.events = l.events[1:]; len(l.events) == 0 {
			l.events = nil
		}
		l.delivering = true
		l.mu.Unlock()
		l.call(ev)
		l.mu.Lock()
	}
	l.mu.Unlock()
}

// signals is what the end of a hold sets off, outside the mutex.
type signals struct {
	lock   *Lock
	err    error
	lost   chan struct{} // to close
	onLoss []func()
	bound  *binding // contexts to end
}

func (s signals) fire() {
	if s.lost != nil {
		close(s.lost)
	}
	for _, f := range s.onLoss {
		f()
	}
	s.bound.endAll(s.err)
	if s.lock != nil {
		s.lock.e.vacate(s.lock, 0, 0)
	}
}

// binding is a context that ends with the lock, in a list guarded by the lock's
// mutex. A list that was taken off its lock belongs to who took it.
type binding struct {
	lock       *Lock
	end        context.CancelCauseFunc
	prev, next *binding
}

// endAll ends b and those behind it.
func (b *binding) endAll(cause error) {
	for ; b != nil; b = b.next {
		b.end(cause)
	}
}

// remove takes b off the list of its lock, if it is there still.
func (b *binding) remove() {
	l := b.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.prev != nil:
		b.prev.next = b.next
	case l.bound == b:
		l.bound = b.next
	default:
		return // taken off with the whole list
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	b.prev = nil
}

// takeBound takes the list off, so that no remove changes it while its contexts
// are ended. It is called with the mutex.
func (l *Lock) takeBound() *binding {
	bound := l.bound
	l.bound = nil
	for b := bound; b != nil; b = b.next {
		b.prev = nil
	}
	return bound
}

// Lost returns a channel that is closed when the lock is lost; it stays open
// when the lock is released.
func (l *Lock) Lost() <-chan struct{} {
	if l == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	var lost chan struct{}
	l.read(func(time.Duration) {
		if l.lostChan == nil {
			l.lostChan = make(chan struct{})
			if l.lostErr != nil {
				close(l.lostChan)
			}
		}
		lost = l.lostChan
	})
	return lost
}

// Bind returns a context that ends with ctx, when the lock is known to be lost
// (its cause is then the [*LostError]), when Release is called (its cause is
// [ErrReleased]), and when the locker is closed ([ErrClosed]). There is nothing
// to cancel: it costs memory until the first of these.
func (l *Lock) Bind(ctx context.Context) context.Context {
	if err := checkContext(ctx); err != nil {
		return endedContext(context.Background(), err)
	}
	if l == nil {
		return endedContext(ctx, ErrReleased)
	}
	bound, cancel := context.WithCancelCause(ctx)
	b := l.onEnd(cancel)
	if ctx.Done() != nil {
		context.AfterFunc(bound, b.remove) // a short context on a long hold leaves nothing behind
	}
	return bound
}

func endedContext(ctx context.Context, cause error) context.Context {
	ended, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	return ended
}

// onEnd calls end once, when the hold ends or at once if it has ended, unless
// the binding that it returns is removed before.
func (l *Lock) onEnd(end context.CancelCauseFunc) *binding {
	b := &binding{lock: l, end: end}
	var over error
	now := l.e.now()
	l.mu.Lock()
	var lost signals
	if l.lease.observe(now) {
		lost = l.loseNow(now)
	}
	if over = l.errNow(); over == nil && l.e.closed.Load() {
		over = ErrClosed
	}
	if over == nil {
		if b.next = l.bound; b.next != nil {
			b.next.prev = b
		}
		l.bound = b
	}
	l.mu.Unlock()
	if over != nil {
		end(over)
		lost.fire()
		l.deliver()
	}
	return b
}

// whenLost calls f once when the lock is lost, or at once if it is. f must not
// block.
func (l *Lock) whenLost(f func()) {
	now := false
	l.read(func(time.Duration) {
		if now = l.lostErr != nil; !now {
			l.onLoss = append(l.onLoss, f)
		}
	})
	if now {
		f()
	}
}

// endBound ends the contexts of a hold that goes on for now.
func (l *Lock) endBound(cause error) {
	l.mu.Lock()
	bound := l.takeBound()
	l.mu.Unlock()
	bound.endAll(cause)
}

// String names the lock and its state, for logs. It does not show the token.
func (l *Lock) String() string {
	if l == nil {
		return "locco.Lock(nil)"
	}
	return fmt.Sprintf("locco.Lock(%q, %s)", l.key, l.State())
}
