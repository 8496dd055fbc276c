package locco_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	locco "github.com/locco-go/locco/core"
)

const (
	// simTTL is the longest lease that is asked for, without the lock delay.
	simTTL = 10 * time.Second

	// simLag is how long after the deadline of its call a driver of the
	// simulation may return.
	simLag = 2 * time.Second

	// simStall is how long a request may be under way at most. Its caller has
	// given up long before; the store applies it all the same.
	simStall = 45 * time.Second
)

// weather is how likely what happens to a call, each of 1.
type weather struct {
	lost  float64 // the request never arrives
	mute  float64 // the answer never arrives
	stall float64 // the request arrives late, mostly after the end of its call
	slow  float64 // request and answer take about as long as the call may
	fail  float64 // the driver answers an error, whatever became of the request
	twice float64 // the request arrives twice
	deaf  float64 // the driver does not heed the deadline of its context
}

var weathers = []weather{
	{},
	{lost: 0.02, mute: 0.02, stall: 0.02, slow: 0.05, fail: 0.05, twice: 0.02, deaf: 0.1},
	{lost: 0.05, mute: 0.10, stall: 0.15, slow: 0.10, fail: 0.10, twice: 0.10, deaf: 0.3},
	{stall: 0.5, deaf: 0.2},
	{mute: 0.3, slow: 0.3, deaf: 0.7},
}

// window is a span of time, in which a process stands still or a network is
// silent.
type window struct{ from, to time.Time }

// in returns how long the window still lasts at t; 0 outside of it.
func in(windows []window, t time.Time) time.Duration {
	for _, w := range windows {
		if !t.Before(w.from) && t.Before(w.to) {
			return w.to.Sub(t)
		}
	}
	return 0
}

// latest is the end of the last window, if that is after t.
func latest(t time.Time, windows []window) time.Time {
	for _, w := range windows {
		if w.to.After(t) {
			t = w.to
		}
	}
	return t
}

// link is the network between one process and the store, and its driver. What
// the driver does is within what [locco.Backend] allows, but hardly better.
type link struct {
	sim       *simulation
	name      string
	immediate bool // no network at all
	transfers bool // the optional abilities; Watch is always there
	many      bool
	silences  []window

	mu      sync.Mutex // guards what follows
	rng     *rand.Rand
	weather weather
	unsure  map[string]bool // tokens that may be stored though nobody was told

	over atomic.Bool // nothing may be sent any more: Close has returned
}

// fate is what happens to one call.
type fate struct {
	request time.Duration // until the request arrives; negative: it does not
	answer  time.Duration // from then until the answer arrives; negative: it does not
	twice   time.Duration // from then until the request arrives again; negative: it does not
	failAt  time.Duration // when the driver answers err
	err     error
	lag     time.Duration // after the deadline, the driver returns so much later
}

// fate draws what happens to a call that may take until deadline. A request that
// sets a lease of a token anew is resent only if it was not answered: otherwise
// the driver would shorten a later lease behind the back of everybody.
func (l *link) fate(deadline time.Time, sets bool) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, w := l.rng, l.weather
	hit := func(chance float64) bool { return r.Float64() < chance }
	now := time.Now()
	limit := max(time.Until(deadline), 1)
	f := fate{request: upTo(r, 5*time.Millisecond), answer: upTo(r, 5*time.Millisecond), twice: -1}
	if hit(0.1) {
		f.request, f.answer = 0, 0
	}
	if hit(w.slow) {
		f.request, f.answer = upTo(r, limit), upTo(r, limit)
	}
	if hit(w.stall) {
		f.request = upTo(r, simStall)
		if hit(0.5) { // soon after its caller has given up
			f.request = limit + upTo(r, limit)
		}
	}
	if hit(w.deaf) {
		f.lag = upTo(r, simLag)
	}
	if hit(w.mute) {
		f.answer = -1
	}
	if hit(w.fail) {
		f.failAt, f.err = upTo(r, f.request+max(f.answer, 0)+1), errPassing
		if hit(0.2) {
			f.err = errBroken
		}
	}
	switch silent := in(l.silences, now); {
	case silent > 0 && hit(0.5):
		f.request = -1
	case silent > 0: // it waits in some buffer
		f.request += silent
	case hit(w.lost):
		f.request = -1
	}
	if in(l.silences, now.Add(max(f.request, 0)+max(f.answer, 0))) > 0 {
		f.answer = -1
	}
	if hit(w.twice) {
		f.twice = upTo(r, simStall)
		if sets && f.answer >= 0 {
			f.twice = upTo(r, f.answer)
		}
	}
	return f
}

// upTo returns a random duration below d, or 0.
func upTo(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(max(d, 1))))
}

// between returns a random duration from least to below most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + upTo(r, most-least)
}

// call makes a call of the driver: apply is what the store does when the request
// arrives.
func call[T any](ctx context.Context, l *link, sets bool, what, key, token string, apply func() T) (T, error) {
	var none T
	if l.over.Load() {
		l.sim.failf(key, "spec 5.6: %s %s after Close has returned", what, token)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		l.sim.failf(key, "%s without a deadline", what)
	}
	if l.immediate {
		return apply(), nil
	}
	f := l.fate(deadline, sets)
	l.sim.logf(key, "%s: %s %s: %+v", l.name, what, token, f)
	answers := make(chan T, 1)
	if f.request >= 0 {
		l.sim.later(f.request, func() {
			a := apply()
			l.sim.logf(key, "%s: %s %s applied: %+v", l.name, what, token, a)
			if f.answer >= 0 {
				l.sim.later(f.answer, func() { answers <- a })
			}
			if f.twice >= 0 {
				l.sim.later(f.twice, func() {
					l.sim.logf(key, "%s: %s %s again: %+v", l.name, what, token, apply())
				})
			}
		})
	}
	var failed <-chan time.Time
	if f.err != nil {
		failed = time.After(f.failAt)
	}
	done := ctx.Done()
	if f.lag > 0 {
		given := make(chan struct{})
		done = given
		defer time.AfterFunc(time.Until(deadline)+f.lag, func() { close(given) }).Stop()
	}
	select {
	case a := <-answers:
		return a, nil
	case <-failed:
		return none, fmt.Errorf("driver: connection lost: %w", f.err)
	case <-done:
		return none, fmt.Errorf("driver: no answer: %w", context.DeadlineExceeded)
	}
}

// The store is asked without a context: it does not know of the caller's.
var simStoreContext = context.Background()

func (l *link) Acquire(ctx context.Context, le locco.Lease) (locco.Grant, error) {
	if !le.Again && l.isUnsure(le.Token) {
		l.sim.failf(le.Key, "%s: acquire for %s again without saying so (spec 2.6)", l.name, le.Token)
	}
	what := fmt.Sprintf("acquire for %v (again: %t)", le.TTL, le.Again)
	g, err := call(ctx, l, le.Again, what, le.Key, le.Token, func() locco.Grant {
		g, _ := l.sim.store.Acquire(simStoreContext, le)
		l.sim.checkKey(le.Key)
		return g
	})
	l.noteUnsure(err, le)
	return g, err
}

// noteUnsure remembers the tokens of an attempt that failed.
func (l *link) noteUnsure(err error, ls ...locco.Lease) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, le := range ls {
		l.unsure[le.Token] = true
	}
}

func (l *link) isUnsure(token string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsure[token]
}

func (l *link) Extend(ctx context.Context, le locco.Lease) (bool, error) {
	return call(ctx, l, true, fmt.Sprintf("extend for %v", le.TTL), le.Key, le.Token, func() bool {
		ours, _ := l.sim.store.Extend(simStoreContext, le)
		l.sim.checkKey(le.Key)
		return ours
	})
}

func (l *link) Release(ctx context.Context, key, token string) (bool, error) {
	return call(ctx, l, false, "release", key, token, func() bool {
		ours, _ := l.sim.store.Release(simStoreContext, key, token)
		if ours {
			l.sim.freed(key, token)
		}
		l.sim.checkKey(key)
		return ours
	})
}

func (l *link) Holds(ctx context.Context, key, token string) (bool, error) {
	return call(ctx, l, false, "holds", key, token, func() bool {
		ours, _ := l.sim.store.Holds(simStoreContext, key, token)
		return ours
	})
}

func (l *link) Fences() bool             { return true }
func (l *link) Immediate() bool          { return l.immediate }
func (l *link) Retryable(err error) bool { return l.sim.store.Retryable(err) }

func (l *link) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	if !l.transfers {
		return locco.Grant{}, errors.ErrUnsupported
	}
	what := fmt.Sprintf("transfer for %v from %s to", to.TTL, from)
	g, err := call(ctx, l, false, what, to.Key, to.Token, func() locco.Grant {
		g, _ := l.sim.store.Transfer(simStoreContext, from, to)
		if g.OK {
			l.sim.freed(to.Key, from)
		}
		l.sim.checkKey(to.Key)
		return g
	})
	l.noteUnsure(err, to)
	return g, err
}

func (l *link) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	type answer struct {
		grants  []locco.Grant
		refused int
	}
	if !l.many {
		return nil, -1, errors.ErrUnsupported
	}
	a, err := call(ctx, l, false, fmt.Sprintf("acquire many %v", ls), ls[0].Key, ls[0].Token, func() answer {
		grants, refused, _ := l.sim.store.AcquireMany(simStoreContext, ls)
		for _, le := range ls {
			l.sim.checkKey(le.Key)
		}
		return answer{grants, refused}
	})
	if err != nil {
		l.noteUnsure(err, ls...)
		return nil, -1, err
	}
	return a.grants, a.refused, nil
}

func (l *link) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	if !l.many {
		for i := range verdicts {
			verdicts[i].Err = errors.ErrUnsupported
		}
		return verdicts
	}
	answers, err := call(ctx, l, true, fmt.Sprintf("extend many %v", ls), ls[0].Key, ls[0].Token, func() []locco.Verdict {
		verdicts := l.sim.store.ExtendMany(simStoreContext, ls)
		for _, le := range ls {
			l.sim.checkKey(le.Key)
		}
		return verdicts
	})
	for i := range verdicts {
		if verdicts[i].Err = err; err == nil {
			verdicts[i] = answers[i]
		}
	}
	return verdicts
}

// Watch may fail, and its wake-ups may be lost, where there is a network.
func (l *link) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if _, err := call(ctx, l, false, "watch", key, "", func() bool { return true }); err != nil {
		return nil, nil, err
	}
	wake, stop, err := l.sim.store.Watch(simStoreContext, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.immediate && l.rng.Float64() < l.weather.mute {
		wake = make(chan struct{})
	}
	return wake, stop, err
}

// calm ends all that is bad from now on. What is under way still arrives.
func (l *link) calm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = weather{}
}

// windows draws up to n windows within span of now.
func windows(r *rand.Rand, n int, span, longest time.Duration) []window {
	var ws []window
	for range r.IntN(n + 1) {
		from := time.Now().Add(upTo(r, span))
		ws = append(ws, window{from, from.Add(upTo(r, longest))})
	}
	slices.SortFunc(ws, func(a, b window) int { return a.from.Compare(b.from) })
	return ws
}
