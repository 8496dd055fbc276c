package locco_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// Helpers of the tests of holding a lock.

// holdingLocker is newLocker, and fails the test if anything is left behind once
// the locker is closed and all leases are over.
func holdingLocker(t *testing.T, b locco.Backend, opts ...locco.Option) *locco.Locker {
	t.Helper()
	var locker *locco.Locker
	t.Cleanup(func() { // after the Close of newLocker
		for wait := time.Second; locco.KeptLocks(locker) > 0 && wait < time.Hour; wait *= 2 {
			time.Sleep(wait)
		}
		if n := locco.KeptLocks(locker); n > 0 {
			t.Errorf("locks kept after all is over = %d; want 0", n)
		}
		if n := locco.Rooms(locker); n > 0 {
			t.Errorf("rooms kept after all is over = %d; want 0", n)
		}
	})
	locker = newLocker(t, b, opts...)
	return locker
}

// hold takes a key that is free.
func hold(t *testing.T, locker *locco.Locker, key string, ttl time.Duration, opts ...locco.CallOption) *locco.Lock {
	t.Helper()
	lock, err := locker.Acquire(context.Background(), key, ttl, opts...)
	if err != nil {
		t.Fatalf("Acquire(%q) = %v; want a lock", key, err)
	}
	return lock
}

// elapse lets d pass, and then everything happen that happens at that moment.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// hookLog is a hook that remembers.
type hookLog struct {
	mu     sync.Mutex
	events []locco.Event
}

func (h *hookLog) hook(ev locco.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, ev)
}

// of returns the events of key in short: "acquired, extended, lost max-hold".
func (h *hookLog) of(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var texts []string
	for _, ev := range h.events {
		if ev.Key == key {
			texts = append(texts, strings.TrimSpace(fmt.Sprintf("%v %v%v", ev.Kind, ev.Reason, ev.Outcome)))
		}
	}
	return strings.Join(texts, ", ")
}

// last returns the last event of a kind, or a zero one.
func (h *hookLog) last(kind locco.EventKind) locco.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range slices.Backward(h.events) {
		if ev.Kind == kind {
			return ev
		}
	}
	return locco.Event{}
}

// wantEvents checks the events of key, in order.
func wantEvents(t *testing.T, h *hookLog, key, want string) {
	t.Helper()
	if got := h.of(key); got != want {
		t.Errorf("events of %q = %s; want %s", key, got, want)
	}
}

// callLog remembers when a backend was asked for what.
type callLog struct {
	mu    sync.Mutex
	begin time.Time
	calls []timedCall
}

type timedCall struct {
	loccotest.Call
	at time.Duration
}

// logCalls remembers the calls of b from now on. It takes the place of OnCall.
func logCalls(b *loccotest.Backend) *callLog {
	c := &callLog{begin: time.Now()}
	b.OnCall(c.add)
	return c
}

func (c *callLog) add(call loccotest.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, timedCall{call, time.Since(c.begin)})
}

// times returns when the calls of op that concern key were made; "" is any key.
func (c *callLog) times(op loccotest.Op, key string) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := []time.Duration{}
	for _, call := range c.calls {
		about := func(l locco.Lease) bool { return key == "" || l.Key == key }
		if call.Op&op != 0 && slices.ContainsFunc(call.Leases, about) {
			times = append(times, call.at)
		}
	}
	return times
}

// ttls returns the leases that calls of op asked for, for key.
func (c *callLog) ttls(op loccotest.Op, key string) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	ttls := []time.Duration{}
	for _, call := range c.calls {
		for _, l := range call.Leases {
			if call.Op&op != 0 && l.Key == key {
				ttls = append(ttls, l.TTL)
			}
		}
	}
	return ttls
}

func wantTimes(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %v; want %v", what, got, want)
	}
}

// wantState checks the state, and that the other reads agree with it.
func wantState(t *testing.T, lock *locco.Lock, want locco.State) {
	t.Helper()
	if got := lock.State(); got != want {
		t.Errorf("State = %v; want %v", got, want)
		return
	}
	err, left := lock.Err(), lock.Remaining()
	switch want {
	case locco.StateHeld:
		if err != nil || left <= 0 {
			t.Errorf("Err, Remaining = %v, %v; want nil and more than 0 while held", err, left)
		}
	case locco.StateLost:
		if !errors.Is(err, locco.ErrLost) || left != 0 {
			t.Errorf("Err, Remaining = %v, %v; want ErrLost and 0 when lost", err, left)
		}
	case locco.StateReleased:
		if !errors.Is(err, locco.ErrReleased) && !errors.Is(err, locco.ErrLost) || left != 0 {
			t.Errorf("Err, Remaining = %v, %v; want ErrReleased or ErrLost and 0 when released", err, left)
		}
	}
}

// wantLost checks that lock is lost for reason, because of cause if that is not
// nil.
func wantLost(t *testing.T, lock *locco.Lock, reason locco.Reason, cause error) {
	t.Helper()
	wantState(t, lock, locco.StateLost)
	wantLostError(t, lock.Err(), lock.Key(), reason, cause)
	if got := lock.Reason(); got != reason {
		t.Errorf("Reason = %q; want %q", got, reason)
	}
	if !isClosed(lock.Lost()) {
		t.Error("Lost is open; want it closed when the lock is lost")
	}
}

func wantLostError(t *testing.T, err error, key string, reason locco.Reason, cause error) {
	t.Helper()
	var lost *locco.LostError
	if !errors.As(err, &lost) || !errors.Is(err, locco.ErrLost) {
		t.Errorf("error = %v; want a LostError", err)
		return
	}
	if lost.Key != key || lost.Reason != reason {
		t.Errorf("LostError of %q, %q; want %q, %q", lost.Key, lost.Reason, key, reason)
	}
	if cause == nil && lost.Err != nil || cause != nil && !errors.Is(err, cause) {
		t.Errorf("cause of the LostError = %v; want %v", lost.Err, cause)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// jumpClock is a holder's clock that can run ahead of the timers, as after a
// pause that stopped them.
type jumpClock struct {
	begin time.Time
	ahead atomic.Int64
}

func newJumpClock() *jumpClock { return &jumpClock{begin: time.Now()} }

func (c *jumpClock) now() time.Duration       { return time.Since(c.begin) + time.Duration(c.ahead.Load()) }
func (c *jumpClock) jump(pause time.Duration) { c.ahead.Add(int64(pause)) }

// later runs f on a goroutine and returns what it came to and when.
func later[T any](f func() T) func() (T, time.Duration, bool) {
	begin := time.Now()
	var (
		mu     sync.Mutex
		result T
		took   time.Duration
		done   bool
	)
	go func() {
		r := f()
		mu.Lock()
		defer mu.Unlock()
		result, took, done = r, time.Since(begin), true
	}()
	return func() (T, time.Duration, bool) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return result, took, done
	}
}
