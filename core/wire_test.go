package locco_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// wire is what lies between a locker and a store in the tests of acquiring: it
// notes every request and every event, faults can be injected into it, and at
// the end of a test it checks what must be so of any sequence of requests.
type wire struct {
	*loccotest.Backend

	t         *testing.T
	store     *store
	locker    *locco.Locker
	began     time.Time
	immediate bool

	mu        sync.Mutex // guards the rest; not held over a call
	requests  []*request
	events    []locco.Event
	onRequest func(request)
	onAnswer  func(request)
	onEvent   func(locco.Event)
	calls     []*pending
	repeats   bool // a test calls Release again after it failed
}

// request is one call of the backend. Times are since the wire was made.
type request struct {
	op      loccotest.Op
	key     string
	token   string
	from    string // of a Transfer
	leases  []locco.Lease
	sent    time.Duration
	over    time.Duration // when the call returned; -1: it has not
	limit   time.Duration // how long its context gave it
	granted bool
	err     error
	ctx     context.Context
}

// newWire makes a wire with a store at its end. Call it in the bubble.
func newWire(t *testing.T) *wire {
	t.Helper()
	s := newStore()
	return &wire{Backend: loccotest.Wrap(s), t: t, store: s, began: time.Now()}
}

// dial makes the locker, which is closed at the end of the test. Of backend,
// made by one of the methods below, nil means the wire with all abilities.
func (w *wire) dial(backend locco.Backend, opts ...locco.Option) *locco.Locker {
	w.t.Helper()
	if backend == nil {
		backend = w
	}
	w.locker = newLocker(w.t, backend, append(opts, locco.WithEvents(w.note))...)
	w.t.Cleanup(w.checkOver) // before it is closed
	return w.locker
}

// plain is a backend that is asked again and again: it has no wake-ups, no
// hand-over and no sets.
func (w *wire) plain() locco.Backend {
	return struct {
		locco.Backend
		locco.Fencer
		locco.Retryer
	}{w, w, w}
}

// handing is plain with hand-over.
func (w *wire) handing() locco.Backend {
	return struct {
		locco.Backend
		locco.Fencer
		locco.Retryer
		locco.Transferrer
	}{w, w, w, w}
}

// waking is plain with wake-ups.
func (w *wire) waking() locco.Backend {
	return struct {
		locco.Backend
		locco.Fencer
		locco.Retryer
		locco.Watcher
	}{w, w, w, w}
}

// reliable never blocks and loses no wake-up.
func (w *wire) reliable() locco.Backend {
	w.immediate = true
	return struct {
		locco.Backend
		locco.Fencer
		locco.Retryer
		locco.Watcher
		immediater
	}{w, w, w, w, w}
}

// immediater is locco.Immediate under a name that can be embedded: a field of
// that name would hide the method.
type immediater interface{ locco.Immediate }

// Immediate implements [locco.Immediate].
func (w *wire) Immediate() bool { return w.immediate }

func (w *wire) now() time.Duration { return time.Since(w.began) }

// begin notes a request that leaves.
func (w *wire) begin(ctx context.Context, op loccotest.Op, from string, leases ...locco.Lease) *request {
	r := &request{
		op: op, key: leases[0].Key, token: leases[0].Token, from: from, leases: leases,
		sent: w.now(), over: -1, ctx: ctx,
	}
	deadline, ok := ctx.Deadline()
	if r.limit = time.Until(deadline); !ok {
		w.t.Errorf("%v: its context has no deadline (spec 8)", *r)
	}
	if err := ctx.Err(); err != nil && r.limit > 0 {
		w.t.Errorf("%v: its context is over before its deadline: %v (spec 2.6)", *r, err)
	}
	w.mu.Lock()
	w.requests = append(w.requests, r)
	hook := w.onRequest
	w.mu.Unlock()
	if hook != nil {
		hook(*r)
	}
	return r
}

// end notes its answer.
func (w *wire) end(r *request, granted bool, err error) {
	if cause := context.Cause(r.ctx); cause != nil && w.now() < r.sent+r.limit {
		w.t.Errorf("%v: its context ended before its deadline: %v (spec 2.6)", *r, cause)
	}
	w.mu.Lock()
	r.over, r.granted, r.err = w.now(), granted, err
	hook, answered := w.onAnswer, *r
	w.mu.Unlock()
	if hook != nil {
		hook(answered)
	}
}

func (r request) String() string {
	text := fmt.Sprintf("%v %q by %.8s", r.op, r.key, r.token)
	if r.from != "" {
		text += fmt.Sprintf(" from %.8s", r.from)
	}
	if r.leases[0].Again {
		text += " again"
	}
	return fmt.Sprintf("%s (%v to %v)", text, r.sent, r.over)
}

func (w *wire) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	r := w.begin(ctx, loccotest.Acquire, "", l)
	g, err := w.Backend.Acquire(ctx, l)
	w.end(r, g.OK, err)
	return g, err
}

func (w *wire) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	r := w.begin(ctx, loccotest.Extend, "", l)
	ours, err := w.Backend.Extend(ctx, l)
	w.end(r, ours, err)
	return ours, err
}

func (w *wire) Release(ctx context.Context, key, token string) (bool, error) {
	r := w.begin(ctx, loccotest.Release, "", locco.Lease{Key: key, Token: token})
	ours, err := w.Backend.Release(ctx, key, token)
	w.end(r, ours, err)
	return ours, err
}

func (w *wire) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	r := w.begin(ctx, loccotest.Transfer, from, to)
	g, err := w.Backend.Transfer(ctx, from, to)
	w.end(r, g.OK, err)
	return g, err
}

func (w *wire) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	r := w.begin(ctx, loccotest.AcquireMany, "", slices.Clone(ls)...)
	grants, refused, err := w.Backend.AcquireMany(ctx, ls)
	w.end(r, err == nil && refused < 0, err)
	return grants, refused, err
}

func (w *wire) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	r := w.begin(ctx, loccotest.ExtendMany, "", slices.Clone(ls)...)
	verdicts := w.Backend.ExtendMany(ctx, ls)
	w.end(r, false, nil)
	return verdicts
}

func (w *wire) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	r := w.begin(ctx, loccotest.Watch, "", locco.Lease{Key: key})
	wake, stop, err := w.Backend.Watch(ctx, key)
	w.end(r, false, err)
	return wake, stop, err
}

// note is the hook for events.
func (w *wire) note(ev locco.Event) {
	w.mu.Lock()
	w.events = append(w.events, ev)
	hook := w.onEvent
	w.mu.Unlock()
	if hook != nil {
		hook(ev)
	}
}

// hookRequests sets a function that is called when a request leaves, on its
// goroutine; nil means none.
func (w *wire) hookRequests(f func(request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onRequest = f
}

// hookAnswers sets a function that is called before an answer is given.
func (w *wire) hookAnswers(f func(request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onAnswer = f
}

// hookEvents sets a function that is called for every event, in the locker's hook.
func (w *wire) hookEvents(f func(locco.Event)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onEvent = f
}

// sent returns the requests of op so far, in order.
func (w *wire) sent(op loccotest.Op) []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rs []request
	for _, r := range w.requests {
		if op&r.op != 0 {
			rs = append(rs, *r)
		}
	}
	return rs
}

// seen returns the events of a kind so far, in order.
func (w *wire) seen(kind locco.EventKind) []locco.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var evs []locco.Event
	for _, ev := range w.events {
		if ev.Kind == kind {
			evs = append(evs, ev)
		}
	}
	return evs
}

// wantSent checks when the requests of op left.
func (w *wire) wantSent(op loccotest.Op, want ...time.Duration) {
	w.t.Helper()
	var got []time.Duration
	for _, r := range w.sent(op) {
		got = append(got, r.sent)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%v was called at %v; want %v", op, got, want)
	}
}

// wantKinds checks the events so far, by their kinds.
func (w *wire) wantKinds(want ...locco.EventKind) {
	w.t.Helper()
	w.mu.Lock()
	var got []locco.EventKind
	for _, ev := range w.events {
		got = append(got, ev.Kind)
	}
	w.mu.Unlock()
	if !slices.Equal(got, want) {
		w.t.Errorf("events = %v; want %v", got, want)
	}
}

// wantHolder checks who has key in the store: a lock, or nobody if l is nil.
func (w *wire) wantHolder(key string, l *locco.Lock) {
	w.t.Helper()
	if got := w.store.holder(key); got != l.Token() {
		w.t.Errorf("the store has %q under the token %q; want %q", key, got, l.Token())
	}
}

// wantReleased checks that token was released once, and only after the last
// request that could store it was over (spec 2.6).
func (w *wire) wantReleased(token string) {
	w.t.Helper()
	var releases []time.Duration
	var last time.Duration
	for _, r := range w.sent(^loccotest.Op(0)) {
		for _, l := range r.leases {
			switch {
			case l.Token != token:
			case r.op == loccotest.Release:
				releases = append(releases, r.sent)
			case r.op&(loccotest.AnyAcquire|loccotest.Transfer) != 0:
				last = max(last, r.over)
			}
		}
	}
	if len(releases) != 1 || releases[0] < last {
		w.t.Errorf("the token %.8s was released at %v; want once, not before %v", token, releases, last)
	}
}

// checkOver checks what must be so of any sequence of requests, and that nothing
// is left when all is over.
func (w *wire) checkOver() {
	w.t.Helper()
	w.mu.Lock()
	calls := w.calls
	w.mu.Unlock()
	for _, p := range calls { // whose context is over, or will be
		p.wait()
	}
	for _, l := range w.locker.Held() {
		if err := l.Release(context.Background()); err != nil {
			w.t.Errorf("Release of %q at the end = %v; want nil", l.Key(), err)
		}
	}
	synctest.Wait()
	if n := locco.InBackground(w.locker); n > 0 {
		time.Sleep(time.Minute) // calls that hang
		synctest.Wait()
	}
	if n := locco.InBackground(w.locker); n != 0 {
		w.t.Errorf("%d calls run in the background at the end; want none", n)
	}
	if n := locco.Rooms(w.locker); n != 0 {
		w.t.Errorf("the locker has state for %d keys at the end; want none", n)
	}
	w.store.mu.Lock()
	if n := len(w.store.watchers); n != 0 {
		w.t.Errorf("%d keys are watched at the end; want none", n)
	}
	w.store.mu.Unlock()
	w.checkTokens()
}

// checkTokens checks every token's life: no two grants, Again exactly after an
// attempt without a usable answer, no use and no second release once it was
// given back.
func (w *wire) checkTokens() {
	w.t.Helper()
	type life struct{ unanswered, granted, released bool }
	lives := map[string]*life{}
	of := func(key, token string) *life {
		if lives[key+"\x00"+token] == nil {
			lives[key+"\x00"+token] = &life{}
		}
		return lives[key+"\x00"+token]
	}
	for _, r := range w.sent(^loccotest.Op(0)) {
		for _, l := range r.leases {
			if l.Token == "" {
				continue // a watch
			}
			lf := of(l.Key, l.Token)
			switch r.op {
			case loccotest.Acquire, loccotest.AcquireMany, loccotest.Transfer:
				if lf.released {
					w.t.Errorf("%v: the token was given back before (spec 1.7)", r)
				}
				if lf.granted {
					w.t.Errorf("%v: the token had its grant before (spec 1.7)", r)
				}
				if r.op == loccotest.Acquire && l.Again != lf.unanswered {
					w.t.Errorf("%v: Again = %v; want %v (spec 2.6)", r, l.Again, lf.unanswered)
				}
				inTime := r.over >= 0 && r.over-r.sent < l.TTL-l.TTL/100
				lf.granted = lf.granted || r.granted && inTime
				nothing := errors.Is(r.err, errors.ErrUnsupported) || errors.Is(r.err, locco.ErrInvalid) // was done
				lf.unanswered = lf.unanswered || r.err != nil && !nothing || r.granted && !inTime
			case loccotest.Release:
				if lf.released && !w.repeats {
					w.t.Errorf("%v: the token was released before (spec 2.6)", r)
				}
				lf.released = true
			case loccotest.Extend, loccotest.ExtendMany:
				if lf.released {
					w.t.Errorf("%v: the token was released before (spec 4.6)", r)
				}
			}
		}
	}
}

// outcome is what a call that took a lock came to.
type outcome struct {
	lock *locco.Lock
	err  error
	at   time.Duration // since the wire was made
}

// pending is a call on a goroutine of its own.
type pending struct {
	w    *wire
	done chan outcome
	got  *outcome
}

// goAcquire starts an Acquire, and returns when it waits for something.
func (w *wire) goAcquire(ctx context.Context, key string, ttl time.Duration, opts ...locco.CallOption) *pending {
	return w.start(func() (*locco.Lock, error) { return w.locker.Acquire(ctx, key, ttl, opts...) })
}

// goTry starts a TryAcquire, and returns when it waits for something.
func (w *wire) goTry(ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) *pending {
	return w.start(func() (*locco.Lock, error) { return w.locker.TryAcquire(ctx, key, ttl, opts...) })
}

// goTake starts one of the two, to look once.
func (w *wire) goTake(ctx context.Context, try bool, key string, ttl time.Duration) *pending {
	if try {
		return w.goTry(ctx, key, ttl)
	}
	return w.goAcquire(ctx, key, ttl, locco.Retries(0))
}

// start makes a call on a goroutine of its own, and returns when it waits for
// something.
func (w *wire) start(f func() (*locco.Lock, error)) *pending {
	p := w.goCall(f)
	synctest.Wait()
	return p
}

// goCall is start for a goroutine that is not the test's.
func (w *wire) goCall(f func() (*locco.Lock, error)) *pending {
	p := &pending{w: w, done: make(chan outcome, 1)}
	w.mu.Lock()
	w.calls = append(w.calls, p)
	w.mu.Unlock()
	go func() {
		l, err := f()
		p.done <- outcome{l, err, w.now()}
	}()
	return p
}

// wait returns what the call comes to.
func (p *pending) wait() outcome {
	p.w.t.Helper()
	if p.got == nil {
		select {
		case o := <-p.done:
			p.got = &o
		case <-time.After(time.Hour):
			p.w.t.Fatal("a call still waits after an hour")
		}
	}
	return *p.got
}

// lock returns the lock that the call is to get, at want.
func (p *pending) lock(want time.Duration) *locco.Lock {
	p.w.t.Helper()
	o := p.wait()
	if o.err != nil {
		p.w.t.Fatalf("Acquire = %v at %v; want a lock at %v", o.err, o.at, want)
	}
	if o.at != want {
		p.w.t.Errorf("Acquire got its lock at %v; want %v", o.at, want)
	}
	return o.lock
}

// fails checks that the call fails at want with an error that matches all of
// targets, and returns it.
func (p *pending) fails(want time.Duration, targets ...error) error {
	p.w.t.Helper()
	o := p.wait()
	if o.err == nil {
		p.w.t.Fatalf("Acquire got a lock at %v; want %v at %v", o.at, targets, want)
	}
	if o.lock != nil {
		p.w.t.Errorf("Acquire = a lock and %v; want no lock", o.err)
	}
	if o.at != want {
		p.w.t.Errorf("Acquire failed at %v; want %v", o.at, want)
	}
	for _, target := range targets {
		if !errors.Is(o.err, target) {
			p.w.t.Errorf("Acquire = %v; want an error that matches %v", o.err, target)
		}
	}
	return o.err
}

// waits checks that the call has not come back.
func (p *pending) waits() {
	p.w.t.Helper()
	synctest.Wait()
	select {
	case o := <-p.done:
		p.got = &o
		p.w.t.Errorf("Acquire = %v, %v at %v; want it to wait", o.lock.Token(), o.err, o.at)
	default:
	}
}

// matchesNone checks that err matches none of targets.
func matchesNone(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("the error %v matches %v; want it not to", err, target)
		}
	}
}

// sleepTo sleeps to a moment since the wire was made, and until all goroutines
// have done what they do then.
func (w *wire) sleepTo(at time.Duration) {
	w.t.Helper()
	if d := at - w.now(); d > 0 {
		time.Sleep(d)
	}
	synctest.Wait()
}

func (w *wire) inject(op loccotest.Op, times int, effect loccotest.Effect) {
	w.Inject(loccotest.Fault{Op: op, Times: times, Effect: effect})
}

const ms = time.Millisecond
