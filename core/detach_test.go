package locco_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// detach is Detach of a lock that is held.
func detach(t *testing.T, lock *locco.Lock) locco.Handle {
	t.Helper()
	handle, err := lock.Detach()
	if err != nil {
		t.Fatalf("Detach = %v; want a handle", err)
	}
	return handle
}

// spec 5.7: the local hold ends, the key stays.
func TestDetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithFencing(), locco.WithPrefix("p:"), locco.WithEvents(h.hook))
		begin := time.Now()
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(time.Minute))
		bound := lock.Bind(context.Background())
		elapse(4 * time.Second)
		sent := b.Calls(loccotest.AnyExtend)
		handle := detach(t, lock)
		want := locco.Handle{Key: "p:k", Token: lock.Token(), Fence: lock.Fence(), HoldDeadline: handle.HoldDeadline}
		if handle != want || handle.Fence == 0 {
			t.Errorf("Detach = %+v; want %+v", handle, want)
		}
		if !handle.HoldDeadline.Equal(begin.Add(time.Minute)) {
			t.Errorf("HoldDeadline = %v; want %v", handle.HoldDeadline, begin.Add(time.Minute))
		}
		wantState(t, lock, locco.StateReleased)
		if !errors.Is(context.Cause(bound), locco.ErrReleased) {
			t.Errorf("Cause of the bound context = %v; want ErrReleased", context.Cause(bound))
		}
		if inner.holder("p:k") != lock.Token() {
			t.Error("the key is not ours any more; want it kept")
		}
		if _, err := lock.Detach(); !errors.Is(err, locco.ErrReleased) {
			t.Errorf("Detach again = %v; want ErrReleased", err)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if n := len(locker.Held()); n != 0 {
			t.Errorf("Held = %d locks; want 0", n)
		}
		elapse(time.Minute)
		if n := b.Calls(loccotest.AnyExtend) - sent; n != 0 {
			t.Errorf("extensions after Detach = %d; want 0", n)
		}
		if n := b.Calls(loccotest.Release); n != 0 {
			t.Errorf("releases = %d; want 0", n)
		}
		wantEvents(t, h, "p:k", "acquired, extended, released detached")
		if ev := h.last(locco.EventReleased); ev.Held != 4*time.Second {
			t.Errorf("released event: Held = %v; want 4s", ev.Held)
		}
	})
}

// spec 5.7: what is not held cannot be detached.
func TestDetachOfWhatIsNotHeld(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		end  func(b *loccotest.Backend, lock *locco.Lock)
		want error
	}{
		{"Lost", func(*loccotest.Backend, *locco.Lock) { elapse(time.Minute) }, locco.ErrLost},
		{"Released", func(_ *loccotest.Backend, lock *locco.Lock) { lock.Release(ctx) }, locco.ErrReleased},
		{"Releasing", func(b *loccotest.Backend, lock *locco.Lock) {
			b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayAnswer(time.Second)})
			go lock.Release(ctx)
			synctest.Wait()
		}, locco.ErrReleased},
		{"ReleaseFailed", func(b *loccotest.Backend, lock *locco.Lock) {
			b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.FailRequest(errBroken)})
			lock.Release(ctx)
		}, locco.ErrReleased},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second)
				tc.end(b, lock)
				if handle, err := lock.Detach(); !errors.Is(err, tc.want) || handle != (locco.Handle{}) {
					t.Errorf("Detach = %+v, %v; want nothing and %v", handle, err, tc.want)
				}
				elapse(time.Minute)
				if got := h.of("k"); strings.Contains(got, "detached") {
					t.Errorf("events = %s; want no detached", got)
				}
			})
		})
	}
}

// spec 5.7: another process takes over, with the fence and the hold deadline.
func TestAttach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		first := holdingLocker(t, loccotest.Wrap(inner), locco.WithFencing(), locco.WithPrefix("p:"))
		begin := time.Now()
		lock := hold(t, first, "k", 9*time.Second, locco.AutoExtend(30*time.Second))
		elapse(4 * time.Second)
		text, err := json.Marshal(detach(t, lock))
		if err != nil {
			t.Fatalf("Marshal = %v", err)
		}
		if err := first.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		elapse(2 * time.Second)

		b := loccotest.Wrap(inner)
		calls := logCalls(b)
		h := &hookLog{}
		second := holdingLocker(t, b, locco.WithEvents(h.hook), locco.WithPrefix("other:"))
		var handle locco.Handle
		if err := json.Unmarshal(text, &handle); err != nil {
			t.Fatalf("Unmarshal = %v", err)
		}
		attached, err := second.Attach(context.Background(), handle, 6*time.Second, locco.AutoExtend(time.Hour))
		if err != nil {
			t.Fatalf("Attach = %v; want a lock", err)
		}
		if attached.Key() != "p:k" || attached.Token() != lock.Token() || attached.Fence() != lock.Fence() || attached.Fence() == 0 {
			t.Errorf("Key, Token, Fence = %q, %q, %d; want those of the detached lock, %q, %q, %d",
				attached.Key(), attached.Token(), attached.Fence(), lock.Key(), lock.Token(), lock.Fence())
		}
		if attached.TTL() != 6*time.Second || attached.Waited() != 0 || attached.Attempts() != 1 {
			t.Errorf("TTL, Waited, Attempts = %v, %v, %d; want 6s, 0, 1", attached.TTL(), attached.Waited(), attached.Attempts())
		}
		if got := attached.Remaining(); got != 5940*time.Millisecond {
			t.Errorf("Remaining = %v; want 5.94s", got)
		}
		if got := attached.HoldDeadline(); !got.Equal(begin.Add(30 * time.Second)) {
			t.Errorf("HoldDeadline = %v; want the first lock's, %v", got, begin.Add(30*time.Second))
		}
		if n := b.Calls(loccotest.AnyAcquire); n != 0 {
			t.Errorf("acquisitions = %d; want 0: it is an extension", n)
		}
		elapse(7 * time.Second)
		wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, "p:k"), 0, 2*time.Second, 4*time.Second, 6*time.Second)
		if held := second.Held(); len(held) != 1 || held[0] != attached {
			t.Errorf("Held = %v; want the attached lock", held)
		}
		time.Sleep(time.Until(begin.Add(30*time.Second)) - 1)
		wantState(t, attached, locco.StateHeld)
		elapse(1)
		wantLost(t, attached, locco.ReasonMaxHold, nil)
		if got := h.of("p:k"); !strings.HasPrefix(got, "acquired, extended, ") || !strings.HasSuffix(got, ", lost max-hold") {
			t.Errorf("events = %s; want acquired, extended …, lost max-hold", got)
		}
	})
}

// spec 5.7, 4.3: the hold deadline goes on to count; it can be brought forward,
// not put off.
func TestAttachKeepsTheHoldDeadline(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		name    string
		first   []locco.CallOption
		second  []locco.HoldOption
		ttl     time.Duration
		end     time.Duration // after the attach, which comes 4s after the grant
		reason  locco.Reason
		extends bool
	}{
		{"PutOff", []locco.CallOption{locco.AutoExtend(30 * s)}, []locco.HoldOption{locco.AutoExtend(60 * s)}, 6 * s, 26 * s, locco.ReasonMaxHold, true},
		{"BroughtForward", []locco.CallOption{locco.AutoExtend(30 * s)}, []locco.HoldOption{locco.AutoExtend(10 * s)}, 6 * s, 10 * s, locco.ReasonMaxHold, true},
		{"Added", nil, []locco.HoldOption{locco.AutoExtend(10 * s)}, 6 * s, 10 * s, locco.ReasonMaxHold, true},
		{"WithoutHeartbeat", []locco.CallOption{locco.AutoExtend(30 * s)}, nil, 10 * s, 9900 * time.Millisecond, locco.ReasonExpired, false},
		{"NoDeadline", nil, nil, 10 * s, 9900 * time.Millisecond, locco.ReasonExpired, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				first := holdingLocker(t, inner)
				lock := hold(t, first, "k", 9*s, tc.first...)
				elapse(4 * s)
				handle := detach(t, lock)
				b := loccotest.Wrap(inner)
				second := holdingLocker(t, b)
				attached, err := second.Attach(context.Background(), handle, tc.ttl, tc.second...)
				if err != nil {
					t.Fatalf("Attach = %v; want a lock", err)
				}
				time.Sleep(tc.end - 1)
				wantState(t, attached, locco.StateHeld)
				elapse(1)
				wantLost(t, attached, tc.reason, nil)
				if n := b.Calls(loccotest.AnyExtend); n > 1 != tc.extends {
					t.Errorf("extensions = %d; want heartbeats: %v", n, tc.extends)
				}
			})
		})
	}
}

// spec 5.7, 4.3: a handle's deadline clamps what is asked for, also without a
// heartbeat and by hand.
func TestAttachIsClamped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		first := holdingLocker(t, inner)
		handle := detach(t, hold(t, first, "k", 10*time.Second, locco.AutoExtend(10*time.Second)))
		elapse(5 * time.Second)
		b := loccotest.Wrap(inner)
		calls := logCalls(b)
		second := holdingLocker(t, b)
		attached, err := second.Attach(context.Background(), handle, time.Hour)
		if err != nil {
			t.Fatalf("Attach = %v; want a lock", err)
		}
		if got := attached.Remaining(); got > 5*time.Second || got < 4900*time.Millisecond {
			t.Errorf("Remaining = %v; want about the 5s that are left of the hold", got)
		}
		if got := attached.TTL(); got != time.Hour {
			t.Errorf("TTL = %v; want what was asked for, 1h", got)
		}
		if err := attached.Extend(context.Background(), time.Hour); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		for _, ttl := range calls.ttls(loccotest.Extend, "k") {
			if ttl > 5051*time.Millisecond {
				t.Errorf("the backend was asked for %v; want no more than reaches the deadline", ttl)
			}
		}
		if got := attached.Remaining(); got != 5*time.Second {
			t.Errorf("Remaining after Extend = %v; want 5s", got)
		}
		elapse(5 * time.Second)
		wantLost(t, attached, locco.ReasonMaxHold, nil)
	})
}

// spec 5.7, 4.5: what cannot be taken over.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		before func(b *loccotest.Backend)
		want   error
		reason locco.Reason
		sent   int
	}{
		{"Stolen", func(b *loccotest.Backend) { b.Steal(ctx, "k", time.Minute) }, locco.ErrLost, locco.ReasonExtend, 1},
		{"Expired", func(*loccotest.Backend) { elapse(10 * time.Second) }, locco.ErrLost, locco.ReasonExtend, 1},
		{"HoldDeadlinePassed", func(*loccotest.Backend) { elapse(20 * time.Second) }, locco.ErrLost, locco.ReasonMaxHold, 0},
		{"HoldDeadlineNear", func(*loccotest.Backend) { elapse(20*time.Second - time.Millisecond + 1) }, locco.ErrLost, locco.ReasonMaxHold, 0},
		{"DriverError", func(b *loccotest.Backend) {
			b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		}, errBroken, "", 1},
		{"NoAnswer", func(b *loccotest.Backend) {
			b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.DropAnswer()})
		}, locco.ErrLate, "", 1},
		{"LateAnswer", func(b *loccotest.Backend) {
			b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.LateAnswer(10 * time.Second)})
		}, locco.ErrLate, "", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				first := holdingLocker(t, b)
				handle := detach(t, hold(t, first, "k", 10*time.Second, locco.AutoExtend(20*time.Second)))
				tc.before(b)
				second := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock, err := second.Attach(ctx, handle, 10*time.Second, locco.AutoExtend(time.Hour))
				if lock != nil || !errors.Is(err, tc.want) {
					t.Errorf("Attach = %v, %v; want %v", lock, err, tc.want)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Attach = %v; want no error that looks like the caller's context", err)
				}
				if tc.reason != "" {
					wantLostError(t, err, "k", tc.reason, nil)
				}
				elapse(time.Minute)
				if n := b.Calls(loccotest.AnyExtend); n != tc.sent {
					t.Errorf("extensions = %d; want %d", n, tc.sent)
				}
				if n := locco.KeptLocks(second); n != 0 {
					t.Errorf("locks kept = %d; want 0", n)
				}
				if got := h.of("k"); strings.Contains(got, "acquired") {
					t.Errorf("events = %s; want no acquired", got)
				}
			})
		})
	}
}

// spec 5.7: after a driver's error Attach may be called again.
func TestAttachAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		handle := detach(t, hold(t, locker, "k", 10*time.Second))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		if _, err := locker.Attach(context.Background(), handle, 10*time.Second); err != errBroken {
			t.Errorf("Attach = %v; want %v", err, errBroken)
		}
		lock, err := locker.Attach(context.Background(), handle, 10*time.Second)
		if err != nil {
			t.Fatalf("Attach again = %v; want a lock", err)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if b.Calls(loccotest.Release) != 1 {
			t.Error("the key was not freed")
		}
	})
}

// spec 1.9, 1.3: a bad handle, TTL, option or context is found before any I/O.
func TestAttachValidates(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	good := locco.Handle{Key: "k", Token: strings.Repeat("ab", 16)}
	with := func(change func(h *locco.Handle)) locco.Handle {
		h := good
		change(&h)
		return h
	}
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		handle locco.Handle
		ttl    time.Duration
		opts   []locco.HoldOption
	}{
		{"NilContext", nil, good, time.Second, nil},
		{"NoHandle", ctx, locco.Handle{}, time.Second, nil},
		{"NoKey", ctx, with(func(h *locco.Handle) { h.Key = "" }), time.Second, nil},
		{"BadKey", ctx, with(func(h *locco.Handle) { h.Key = "\xff" }), time.Second, nil},
		{"NoToken", ctx, with(func(h *locco.Handle) { h.Token = "" }), time.Second, nil},
		{"BadToken", ctx, with(func(h *locco.Handle) { h.Token = "a\x00b" }), time.Second, nil},
		{"NegativeFence", ctx, with(func(h *locco.Handle) { h.Fence = -1 }), time.Second, nil},
		{"FenceTooLarge", ctx, with(func(h *locco.Handle) { h.Fence = 1 << 53 }), time.Second, nil},
		{"TTLTooShort", ctx, good, time.Millisecond - 1, nil},
		{"TTLTooLong", ctx, good, locco.MaxDuration + 1, nil},
		{"BadOption", ctx, good, time.Second, []locco.HoldOption{locco.ExtendEvery(time.Millisecond)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				if lock, err := locker.Attach(tc.ctx, tc.handle, tc.ttl, tc.opts...); lock != nil || !errors.Is(err, locco.ErrInvalid) {
					t.Errorf("Attach = %v, %v; want ErrInvalid", lock, err)
				}
				if n := b.Calls(loccotest.AnyExtend); n != 0 {
					t.Errorf("extensions = %d; want 0", n)
				}
			})
		})
	}
}

// spec 5.7, 2.6: a caller whose context ended gets the error at once, and
// nothing is renewed for it.
func TestAttachWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		handle := detach(t, hold(t, locker, "k", 10*time.Second))
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errPassing)
		if _, err := locker.Attach(ended, handle, 10*time.Second); !errors.Is(err, context.Canceled) || !errors.Is(err, errPassing) {
			t.Errorf("Attach with an ended context = %v; want its error and cause", err)
		}
		if n := b.Calls(loccotest.AnyExtend); n != 0 {
			t.Errorf("extensions = %d; want 0", n)
		}
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DelayAnswer(2 * time.Second)})
		ctx, cancel2 := context.WithTimeout(context.Background(), time.Second)
		defer cancel2()
		begin := time.Now()
		lock, err := locker.Attach(ctx, handle, 10*time.Second, locco.AutoExtend(day))
		if lock != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Attach = %v, %v; want DeadlineExceeded", lock, err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Attach took %v; want 1s", took)
		}
		elapse(time.Minute)
		if n := b.Calls(loccotest.AnyExtend); n != 1 {
			t.Errorf("extensions = %d; want the one that was under way", n)
		}
		if inner.holder("k") != "" {
			t.Error("the key is still taken; want it to expire")
		}
		if n := locco.KeptLocks(locker); n != 0 {
			t.Errorf("locks kept = %d; want 0", n)
		}
		wantEvents(t, h, "k", "acquired, released detached")
	})
}

// spec 4.6, 5.7: the answer of an extension in flight at Detach changes nothing.
func TestDetachOvertakesAHeartbeat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
	}{
		{"Extended", loccotest.DelayAnswer(2 * time.Second)},
		{"Failed", loccotest.DropRequest()},
		{"NotOurs", loccotest.DelayRequest(2 * time.Second)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: tc.effect})
				elapse(3 * time.Second)
				detach(t, lock)
				if tc.name == "NotOurs" {
					b.Free(context.Background(), "k")
				}
				elapse(time.Minute)
				if n := b.Calls(loccotest.AnyExtend); n != 1 {
					t.Errorf("extensions = %d; want the one that was under way", n)
				}
				wantState(t, lock, locco.StateReleased)
				if isClosed(lock.Lost()) {
					t.Error("Lost is closed; want it open")
				}
				wantEvents(t, h, "k", "acquired, released detached")
			})
		})
	}
}

// spec 4.4, 5.7: an extension without an answer may still be applied after the
// lock was taken over: the new holder does not believe in more either.
func TestAttachAfterAnUnansweredExtension(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		wait   time.Duration // from the Extend to the Detach
	}{
		{"Failed", loccotest.FailRequest(errBroken), 0},
		{"UnderWay", loccotest.DropRequest(), time.Second},
		{"NoAnswer", loccotest.DropRequest(), 4 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", time.Minute)
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: tc.effect})
				extend := later(func() error { return lock.Extend(context.Background(), 5*time.Second) })
				elapse(tc.wait)
				text, err := json.Marshal(detach(t, lock))
				if err != nil {
					t.Fatalf("Marshal = %v", err)
				}
				var handle locco.Handle
				if err := json.Unmarshal(text, &handle); err != nil {
					t.Fatalf("Unmarshal = %v", err)
				}
				attached, err := locker.Attach(context.Background(), handle, time.Minute)
				if err != nil {
					t.Fatalf("Attach = %v; want a lock", err)
				}
				if got := attached.Remaining(); got != 4950*time.Millisecond {
					t.Errorf("Remaining = %v; want 4.95s: the shorter extension may still arrive", got)
				}
				if err := attached.Extend(context.Background(), time.Minute); err != nil {
					t.Errorf("Extend = %v; want nil", err)
				}
				if got := attached.Remaining(); got != 4950*time.Millisecond {
					t.Errorf("Remaining after Extend = %v; want 4.95s", got)
				}
				elapse(10 * time.Second)
				wantState(t, attached, locco.StateLost)
				if _, _, done := extend(); !done {
					t.Error("Extend hangs")
				}
			})
		})
	}
}

// spec 5.7, 3.5, 3.6: an attached lock is a lock like any other to the waiters
// of its locker.
func TestAttachedLockIsHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		first := holdingLocker(t, b)
		handle := detach(t, hold(t, first, "k", 10*time.Second))
		second := holdingLocker(t, b)
		lock, err := second.Attach(context.Background(), handle, time.Minute)
		if err != nil {
			t.Fatalf("Attach = %v; want a lock", err)
		}
		next := later(func() *locco.Lock { return hold(t, second, "k", time.Minute, locco.RetryDelay(time.Hour)) })
		elapse(time.Second)
		if n := b.Calls(loccotest.Acquire); n != 1 {
			t.Errorf("looks = %d; want none for a key that this locker holds", n-1)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if got, took, _ := next(); got == nil || took != time.Second {
			t.Errorf("the waiter got %v after %v; want the key at once", got, took)
		}
	})
}

// spec 5.7, 3.4: waiters of the locker that detached get the key when its lease
// is over.
func TestWaitersAfterDetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		lock := hold(t, locker, "k", 10*time.Second)
		next := later(func() *locco.Lock {
			return hold(t, locker, "k", time.Minute, locco.RetryForever(), locco.RetryDelay(time.Hour))
		})
		elapse(time.Second)
		detach(t, lock)
		elapse(time.Minute)
		if got, took, _ := next(); got == nil || took != 10*time.Second {
			t.Errorf("the waiter got %v after %v; want the key after 10s", got, took)
		}
	})
}

// spec 1.10, 5.5: the options of a hold count for an attached lock.
func TestAttachOptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		calls := logCalls(b)
		locker := holdingLocker(t, b)
		handle := detach(t, hold(t, locker, "k", 10*time.Second))
		lock, err := locker.Attach(context.Background(), handle, 10*time.Second, locco.LockDelay(5*time.Second), locco.HoldAtLeast(8*time.Second))
		if err != nil {
			t.Fatalf("Attach = %v; want a lock", err)
		}
		wantTimes(t, "leases asked for", calls.ttls(loccotest.Extend, "k"), 15*time.Second)
		if got := lock.Remaining(); got != 9900*time.Millisecond {
			t.Errorf("Remaining = %v; want 9.9s", got)
		}
		lock.Release(context.Background())
		elapse(8*time.Second - 1)
		if inner.holder("k") == "" {
			t.Error("the key is free before HoldAtLeast has passed")
		}
		elapse(1)
		if inner.holder("k") != "" {
			t.Error("the key is taken when HoldAtLeast has passed")
		}
	})
}
