package locco_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

const day = 24 * time.Hour

// spec 4.2, 4.4: when the heartbeat asks, and for how long.
func TestHeartbeatTimes(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	fault := func(op loccotest.Op, skip, times int, effect loccotest.Effect) loccotest.Fault {
		return loccotest.Fault{Op: op, Skip: skip, Times: times, Effect: effect}
	}
	for _, tc := range []struct {
		name   string
		opts   []locco.CallOption
		faults []loccotest.Fault
		manual time.Duration // extended by hand for so long, one second after the grant
		ask    time.Duration // what the last heartbeat asks for
		want   []time.Duration
	}{
		{"AThirdOfTheTTL", nil, nil, 0, 9 * s, []time.Duration{3 * s, 6 * s, 9 * s, 12 * s}},
		{
			"Explicit",
			[]locco.CallOption{locco.ExtendEvery(2500 * ms)},
			nil, 0, 9 * s,
			[]time.Duration{2500 * ms, 5 * s, 7500 * ms, 10 * s},
		},
		{
			"SlowGrant", nil,
			[]loccotest.Fault{fault(loccotest.Acquire, 0, 1, loccotest.DelayAnswer(2*s))},
			0, 9 * s,
			[]time.Duration{3 * s, 6 * s, 9 * s, 12 * s},
		},
		{
			"SlowAnswers", nil,
			[]loccotest.Fault{fault(loccotest.Extend, 0, 0, loccotest.DelayAnswer(2*s))},
			0, 9 * s,
			[]time.Duration{3 * s, 6 * s, 9 * s, 12 * s},
		},
		{
			"AnswersSlowerThanTheInterval",
			[]locco.CallOption{locco.ExtendEvery(s)},
			[]loccotest.Fault{fault(loccotest.Extend, 0, 1, loccotest.DelayAnswer(2500*ms))},
			0, 9 * s,
			[]time.Duration{s, 3500 * ms, 4500 * ms, 5500 * ms},
		},
		{"AfterAManualExtend", nil, nil, 9 * s, 9 * s, []time.Duration{s, 4 * s, 7 * s, 10 * s}},
		{"AfterALongerOne", nil, nil, 30 * s, 30 * s, []time.Duration{s, 11 * s, 21 * s}},
		{"AfterAShorterOne", nil, nil, 3 * s, 3 * s, []time.Duration{s, 2 * s, 3 * s, 4 * s}},
		{
			"AtMostHalfOfAShorterOne",
			[]locco.CallOption{locco.ExtendEvery(4 * s)},
			nil, 5 * s, 5 * s,
			[]time.Duration{s, 3500 * ms, 6 * s, 8500 * ms},
		},
		{
			"ExplicitStaysAfterALongerOne",
			[]locco.CallOption{locco.ExtendEvery(4 * s)},
			nil, 50 * s, 50 * s,
			[]time.Duration{s, 5 * s, 9 * s, 13 * s},
		},
		{
			"AfterADriverError", nil,
			[]loccotest.Fault{fault(loccotest.Extend, 0, 1, loccotest.FailRequest(errBroken))},
			0, 9 * s,
			[]time.Duration{3 * s, 4 * s, 7 * s, 10 * s},
		},
		{
			"AfterAPassingError", nil,
			[]loccotest.Fault{fault(loccotest.Extend, 0, 2, loccotest.FailRequest(errPassing))},
			0, 9 * s,
			[]time.Duration{3 * s, 4 * s, 5 * s, 8 * s},
		},
		{
			"ExplicitAfterADriverError",
			[]locco.CallOption{locco.ExtendEvery(1500 * ms)},
			[]loccotest.Fault{fault(loccotest.Extend, 1, 1, loccotest.FailRequest(errBroken))},
			0, 9 * s,
			[]time.Duration{1500 * ms, 3 * s, 3500 * ms, 5 * s},
		},
		{
			// The error comes at the call timeout, at 6s.
			"AfterNoAnswer", nil,
			[]loccotest.Fault{fault(loccotest.Extend, 0, 1, loccotest.DropRequest())},
			0, 9 * s,
			[]time.Duration{3 * s, 7 * s, 10 * s, 13 * s},
		},
		{
			"AfterAManualOneFailed", nil,
			[]loccotest.Fault{fault(loccotest.Extend, 0, 1, loccotest.FailRequest(errBroken))},
			9 * s, 9 * s,
			[]time.Duration{s, 2 * s, 5 * s, 8 * s},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				calls := logCalls(b)
				for _, f := range tc.faults {
					b.Inject(f)
				}
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", 9*s, append(tc.opts, locco.AutoExtend(day))...)
				if tc.manual > 0 {
					time.Sleep(s)
					lock.Extend(context.Background(), tc.manual)
				}
				for len(calls.times(loccotest.AnyExtend, "k")) < len(tc.want) && lock.State() == locco.StateHeld {
					elapse(100 * ms)
				}
				wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, "k"), tc.want...)
				ttls := calls.ttls(loccotest.AnyExtend, "k")
				if got := ttls[len(ttls)-1]; got != tc.ask {
					t.Errorf("the last extension asks for %v; want %v", got, tc.ask)
				}
				wantState(t, lock, locco.StateHeld)
			})
		})
	}
}

// spec 4.2, 4.3: off by default; a locker that turns it on can be overridden.
func TestAutoExtendIsAChoice(t *testing.T) {
	t.Parallel()
	on := []locco.Option{locco.WithDefaults(locco.AutoExtend(time.Hour))}
	for _, tc := range []struct {
		name    string
		locker  []locco.Option
		call    []locco.CallOption
		extends bool
	}{
		{"Default", nil, nil, false},
		{"Call", nil, []locco.CallOption{locco.AutoExtend(time.Hour)}, true},
		{"Locker", on, nil, true},
		{"LockerOverridden", on, []locco.CallOption{locco.NoAutoExtend()}, false},
		{"LockerOverriddenTwice", on, []locco.CallOption{locco.NoAutoExtend(), locco.AutoExtend(time.Minute)}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b, tc.locker...)
				lock := hold(t, locker, "k", 9*time.Second, tc.call...)
				elapse(10 * time.Second)
				if n := b.Calls(loccotest.AnyExtend); n > 0 != tc.extends {
					t.Errorf("extensions = %d; want some: %v", n, tc.extends)
				}
				if held := lock.State() == locco.StateHeld; held != tc.extends {
					t.Errorf("held after its TTL = %v; want %v", held, tc.extends)
				}
			})
		})
	}
}

// spec 4.3: a deadline counted from the acquisition. The last extension is
// clamped so that the lease reaches it, none is sent after that, and the lock is
// lost there.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	for _, tc := range []struct {
		name    string
		ttl     time.Duration
		maxHold time.Duration
		grant   time.Duration // how long the answer to the acquisition takes
		times   []time.Duration
		last    time.Duration // lease that the last extension asks for
	}{
		// At 12s, 8s are left: 8s and the hundredth that the holder does not trust.
		{"LongerThanTheTTL", 9 * s, 20 * s, 0, []time.Duration{3 * s, 6 * s, 9 * s, 12 * s}, 8081 * ms},
		{"TheTTL", 9 * s, 9 * s, 0, []time.Duration{3 * s}, 6061 * ms},
		// The first lease ends at 8.91s.
		{"JustLongerThanTheLease", 9 * s, 9100 * ms, 0, []time.Duration{3 * s}, 6162 * ms},
		{"SlowGrant", 9 * s, 9 * s, 2 * s, []time.Duration{3 * s}, 6061 * ms},
		{
			"Short", 10 * ms, 15 * ms, 0,
			[]time.Duration{10 * ms / 3, 20 * ms / 3},
			9 * ms,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				calls := logCalls(b)
				if tc.grant > 0 {
					b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.DelayAnswer(tc.grant)})
				}
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				begin := time.Now()
				lock := hold(t, locker, "k", tc.ttl, locco.AutoExtend(tc.maxHold))
				bound := lock.Bind(context.Background())
				time.Sleep(tc.maxHold - 1 - time.Since(begin))
				wantState(t, lock, locco.StateHeld)
				elapse(1)
				wantLost(t, lock, locco.ReasonMaxHold, nil)
				wantLostError(t, context.Cause(bound), "k", locco.ReasonMaxHold, nil)
				if got := lock.HeldFor(); got != tc.maxHold {
					t.Errorf("HeldFor = %v; want %v", got, tc.maxHold)
				}
				elapse(time.Hour)
				wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, "k"), tc.times...)
				ttls := calls.ttls(loccotest.AnyExtend, "k")
				if got := ttls[len(ttls)-1]; got != tc.last {
					t.Errorf("the last extension asks for %v; want %v", got, tc.last)
				}
				wantEvents(t, h, "k", "acquired, "+strings.Repeat("extended, ", len(tc.times))+"lost max-hold")
			})
		})
	}
}

// spec 4.3: manual extensions are clamped too, and do not put the deadline off;
// where the lease runs to it nothing is sent.
func TestMaxHoldWithManualExtends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		locker := holdingLocker(t, b)
		ctx := context.Background()
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(20*time.Second))
		elapse(10 * time.Second)
		sent := b.Calls(loccotest.AnyExtend)
		if err := lock.Extend(ctx, time.Hour); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		if got := lock.Remaining(); got != 10*time.Second {
			t.Errorf("Remaining after a clamped Extend = %v; want 10s", got)
		}
		if got := lock.TTL(); got != time.Hour {
			t.Errorf("TTL after a clamped Extend = %v; want what was asked for, 1h", got)
		}
		ttls := calls.ttls(loccotest.AnyExtend, "k")
		if got, most := ttls[len(ttls)-1], 10102*time.Millisecond; got > most {
			t.Errorf("the clamped extension asks for %v; want at most %v", got, most)
		}
		if err := lock.Extend(ctx, time.Hour); err != nil {
			t.Errorf("Extend at the limit = %v; want nil", err)
		}
		elapse(10*time.Second - 1)
		wantState(t, lock, locco.StateHeld)
		if n := b.Calls(loccotest.AnyExtend) - sent; n != 1 {
			t.Errorf("extensions = %d; want 1: no other could end later", n)
		}
		elapse(1)
		wantLost(t, lock, locco.ReasonMaxHold, nil)
		if err := lock.Extend(ctx, time.Hour); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Extend after the deadline = %v; want ErrLost", err)
		}
	})
}

// spec 4.3: a clamp below 1 ms is the loss.
func TestClampBelowAMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(20*time.Second))
		elapse(20*time.Second - time.Millisecond + 1)
		wantState(t, lock, locco.StateHeld)
		sent := b.Calls(loccotest.AnyExtend)
		wantLostError(t, lock.Extend(context.Background(), time.Second), "k", locco.ReasonMaxHold, nil)
		wantLost(t, lock, locco.ReasonMaxHold, nil)
		if n := b.Calls(loccotest.AnyExtend) - sent; n != 0 {
			t.Errorf("extensions = %d; want 0", n)
		}
		elapse(time.Second)
		if got := h.of("k"); strings.Count(got, "lost") != 1 {
			t.Errorf("events = %s; want one loss", got)
		}
	})
}

// spec 4.3, 4.4: extensions that fail near the hold deadline do not make the
// heartbeat turn in circles.
func TestFailuresNearTheHoldDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		ctx := context.Background()
		lock := hold(t, locker, "k", 10*time.Second, locco.AutoExtend(100*time.Second))
		elapse(time.Second)
		if err := lock.Extend(ctx, time.Hour); err != nil { // to the deadline
			t.Errorf("Extend = %v; want nil", err)
		}
		b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Effect: loccotest.FailRequest(errBroken)})
		elapse(49 * time.Second)
		for _, ttl := range []time.Duration{ // around what just reaches the deadline again
			49 * time.Second, 50 * time.Second, 50505 * time.Millisecond, 50505050505, 50505050506, 51 * time.Second,
		} {
			lock.Extend(ctx, ttl)
		}
		elapse(51 * time.Second)
		if n := b.Calls(loccotest.AnyExtend); n > 200 {
			t.Errorf("extensions = %d; want the heartbeat to keep its pace", n)
		}
		if lock.State() != locco.StateLost {
			t.Errorf("State = %v; want lost", lock.State())
		}
	})
}

// spec 5.3, 4.5: behind a connection that went silent the lock reads lost at the
// local deadline, while the call still hangs; the answer changes nothing.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		held   bool // by the backend, when the lock is lost
	}{
		{"RequestLost", loccotest.DropRequest(), false},
		{"AnswerLost", loccotest.DropAnswer(), true},
		{"AnswerAfterTheEnd", loccotest.LateAnswer(2500 * time.Millisecond), true},
		{"AnswerMuchLater", loccotest.LateAnswer(time.Minute), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				begin := time.Now()
				lock := hold(t, locker, "k", 3*time.Second, locco.AutoExtend(day))
				bound, lost := lock.Bind(context.Background()), lock.Lost()
				elapse(1500 * time.Millisecond) // one heartbeat got through
				b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Effect: tc.effect})
				time.Sleep(time.Second + 2970*time.Millisecond - 1 - time.Since(begin))
				wantState(t, lock, locco.StateHeld)
				time.Sleep(1)
				if got := lock.State(); got != locco.StateLost {
					t.Errorf("State at the local deadline = %v; want lost", got)
				}
				synctest.Wait()
				if !isClosed(lost) || bound.Err() == nil {
					t.Error("the loss signals are silent at the local deadline; want both")
				}
				wantLost(t, lock, locco.ReasonLateExtend, nil)
				wantLostError(t, context.Cause(bound), "k", locco.ReasonLateExtend, nil)
				if locco.InBackground(locker) == 0 {
					t.Error("no call hangs any more; want this test to check the loss meanwhile")
				}
				if got := inner.holder("k") == lock.Token(); !got {
					t.Error("the backend forgot the key first; want the holder to know first")
				}
				wantEvents(t, h, "k", "acquired, extended, lost late-extend")
				elapse(2 * time.Minute)
				if got := h.of("k"); strings.Count(got, "lost") != 1 || strings.Count(got, "extended") != 1 {
					t.Errorf("events = %s; want the late answer to change nothing", got)
				}
				wantLost(t, lock, locco.ReasonLateExtend, nil)
			})
		})
	}
}

// spec 4.4, 4.5: extensions that keep failing.
func TestExtensionsKeepFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		first := errors.New("driver: first")
		b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Times: 1, Effect: loccotest.FailRequest(first)})
		b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Effect: loccotest.FailRequest(errBroken)})
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
		elapse(3 * time.Second)
		wantState(t, lock, locco.StateHeld)
		if ev := h.last(locco.EventExtendFailed); ev.Err != first || ev.Held != 3*time.Second || ev.TTL != 9*time.Second {
			t.Errorf("extend failed event: Err, Held, TTL = %v, %v, %v; want %v, 3s, 9s", ev.Err, ev.Held, ev.TTL, first)
		}
		elapse(5910*time.Millisecond - 1)
		wantState(t, lock, locco.StateHeld)
		elapse(1)
		wantLost(t, lock, locco.ReasonExtendFailed, errBroken)
		if errors.Is(lock.Err(), first) {
			t.Error("the loss matches the first error; want the last")
		}
		wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, "k"),
			3*time.Second, 4*time.Second, 5*time.Second, 6*time.Second, 7*time.Second, 8*time.Second)
		wantEvents(t, h, "k", "acquired, "+strings.Repeat("extend failed, ", 6)+"lost extend-failed")
		if ev := h.last(locco.EventLost); ev.Err != errBroken || ev.Held != 8910*time.Millisecond {
			t.Errorf("lost event: Err, Held = %v, %v; want %v, 8.91s", ev.Err, ev.Held, errBroken)
		}
	})
}

// spec 4.5: when the lease runs out while an extension waits for its answer, the
// driver error before it is the cause.
func TestHangingExtensionAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.LateAnswer(time.Minute)})
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
		elapse(8910 * time.Millisecond)
		wantLost(t, lock, locco.ReasonLateExtend, errBroken)
		elapse(time.Hour)
		wantEvents(t, h, "k", "acquired, extend failed, lost late-extend")
	})
}

// spec 4.5: an extension that works again makes earlier errors forgotten.
func TestExtensionErrorsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", 9*time.Second)
		if err := lock.Extend(context.Background(), 9*time.Second); err != errBroken {
			t.Errorf("Extend = %v; want %v as it is", err, errBroken)
		}
		if err := lock.Extend(context.Background(), 9*time.Second); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		elapse(9 * time.Second)
		wantLost(t, lock, locco.ReasonExpired, nil)
	})
}

// spec 4.5, 4.4, 1.7: the backend refuses the key.
func TestHeartbeatFindsTheKeyNotOurs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		rob  func(b *loccotest.Backend)
	}{
		{"Stolen", func(b *loccotest.Backend) { b.Steal(ctx, "k", time.Minute) }},
		{"Gone", func(b *loccotest.Backend) { b.Free(ctx, "k") }},
		{"StolenAfterAnError", func(b *loccotest.Backend) {
			b.Steal(ctx, "k", time.Minute)
			b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
				tc.rob(b)
				elapse(3*time.Second - 1)
				wantState(t, lock, locco.StateHeld)
				elapse(time.Second + 1)
				wantLost(t, lock, locco.ReasonExtend, nil)
				if inner.holder("k") == lock.Token() {
					t.Error("the key is ours again; want an extension never to create it")
				}
				sent := b.Calls(loccotest.AnyExtend)
				elapse(time.Minute)
				if n := b.Calls(loccotest.AnyExtend); n != sent {
					t.Errorf("extensions after the loss = %d; want 0", n-sent)
				}
				if got := h.of("k"); strings.Count(got, "lost") != 1 {
					t.Errorf("events = %s; want one loss", got)
				}
			})
		})
	}
}

// spec 4.6: the answer of a heartbeat in flight changes nothing once Release was
// called, and no other is sent.
func TestReleaseOvertakesAHeartbeat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		extend loccotest.Effect
	}{
		{"Extended", loccotest.DelayAnswer(2 * time.Second)},
		{"NotOurs", loccotest.DelayRequest(2 * time.Second)},
		{"Failed", loccotest.DropAnswer()},
		{"NoAnswer", loccotest.DropRequest()},
		{"MuchLater", loccotest.LateAnswer(time.Minute)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: tc.extend})
				elapse(4 * time.Second)
				if n := b.Calls(loccotest.Extend); n != 1 {
					t.Fatalf("extensions in flight = %d; want 1", n)
				}
				if err := lock.Release(context.Background()); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				wantState(t, lock, locco.StateReleased)
				elapse(2 * time.Minute)
				wantState(t, lock, locco.StateReleased)
				if err := lock.Err(); !errors.Is(err, locco.ErrReleased) {
					t.Errorf("Err = %v; want ErrReleased", err)
				}
				if isClosed(lock.Lost()) {
					t.Error("Lost is closed; want it open")
				}
				if n := b.Calls(loccotest.Extend); n != 1 {
					t.Errorf("extensions = %d; want none after Release was called", n)
				}
				wantEvents(t, h, "k", "acquired, released freed")
			})
		})
	}
}

// spec 4.6: and while the Release is on its way.
func TestNoHeartbeatDuringRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 3*time.Second, locco.AutoExtend(day))
		elapse(500 * time.Millisecond)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayAnswer(2900 * time.Millisecond)})
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if n := b.Calls(loccotest.AnyExtend); n != 0 {
			t.Errorf("extensions while the release was on its way = %d; want 0", n)
		}
		wantEvents(t, h, "k", "acquired, released freed")
	})
}

// relay is a backend that calls a function before each single extension. It
// never blocks, so one goroutine sends one extension after the other.
type relay struct {
	locco.Backend

	mu     sync.Mutex
	before func(l locco.Lease)
}

func (r *relay) Immediate() bool { return true }

func (r *relay) set(before func(l locco.Lease)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = before
}

func (r *relay) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	r.mu.Lock()
	before := r.before
	r.mu.Unlock()
	before(l)
	return r.Backend.Extend(ctx, l)
}

// spec 4.6: an extension that is about to be sent when Release is called is not
// sent any more.
func TestReleaseOvertakesAnExtensionThatIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &relay{Backend: newStore()}
		locker := holdingLocker(t, b)
		locks := holdMany(t, locker, 2, 9*time.Second, locco.AutoExtend(day))
		var sent []string
		b.set(func(l locco.Lease) { // both are due now: the other one waits for its turn
			sent = append(sent, l.Key)
			for _, lock := range locks {
				if lock.Key() != l.Key {
					lock.Release(context.Background())
				}
			}
		})
		elapse(3*time.Second + 1)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(sent) != 1 {
			t.Errorf("extensions sent = %v; want one: the other was released before", sent)
		}
	})
}

// spec 2.4: when a Release failed, the heartbeat stops for good.
func TestFailedReleaseStopsTheHeartbeat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
	}{
		{"Refused", loccotest.FailRequest(errBroken)},
		{"NoAnswer", loccotest.DropRequest()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 30*time.Second, locco.AutoExtend(day))
				elapse(9 * time.Second)
				b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: tc.effect})
				if err := lock.Release(context.Background()); err == nil || errors.Is(err, locco.ErrLost) {
					t.Errorf("Release = %v; want the driver's error", err)
				}
				wantEvents(t, h, "k", "acquired, release failed")
				elapse(30*time.Second - time.Nanosecond)
				if n := b.Calls(loccotest.AnyExtend); n != 0 {
					t.Errorf("extensions after a failed Release = %d; want 0", n)
				}
				wantLost(t, lock, locco.ReasonRelease, lock.Err().(*locco.LostError).Err)
				wantEvents(t, h, "k", "acquired, release failed, lost release")
				if n := locco.KeptLocks(locker); n != 0 {
					t.Errorf("locks kept after the loss = %d; want 0", n)
				}
			})
		})
	}
}

// spec 4.1, 4.2: one extension of a lock is under way at a time; the heartbeat
// goes by the manual one.
func TestManualExtendAndHeartbeatTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.DelayAnswer(2 * time.Second)})
		elapse(4 * time.Second)
		if err := lock.Extend(context.Background(), 30*time.Second); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		wantTimes(t, "extensions", calls.times(loccotest.Extend, "k"), 3*time.Second, 5*time.Second)
		if got := lock.Remaining(); got != 29700*time.Millisecond {
			t.Errorf("Remaining = %v; want 29.7s, counted from the manual request", got)
		}
		elapse(10 * time.Second)
		wantTimes(t, "extensions", calls.times(loccotest.Extend, "k"), 3*time.Second, 5*time.Second, 15*time.Second)
	})
}

// spec 5.3: the heartbeat that comes due while another hangs is not held up.
func TestHangingHeartbeatHarmsNoOther(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		wrap func(*loccotest.Backend) locco.Backend
	}{
		{"Grouped", func(b *loccotest.Backend) locco.Backend { return b }},
		{"OneByOne", func(b *loccotest.Backend) locco.Backend { return plainStore{b} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				calls := logCalls(b)
				locker := holdingLocker(t, tc.wrap(b))
				hanging := hold(t, locker, "a", 9*time.Second, locco.AutoExtend(day))
				time.Sleep(time.Second)
				other := hold(t, locker, "b", 9*time.Second, locco.AutoExtend(day))
				b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "a", Effect: loccotest.DropRequest()})
				elapse(4 * time.Second)
				if n := locco.InBackground(locker); n != 1 {
					t.Errorf("calls under way = %d; want the one that hangs", n)
				}
				wantTimes(t, "extensions of b", calls.times(loccotest.AnyExtend, "b"), 4*time.Second)
				wantState(t, hanging, locco.StateHeld)
				if got := other.Remaining(); got != 7910*time.Millisecond {
					t.Errorf("Remaining of b = %v; want 7.91s", got)
				}
			})
		})
	}
}

// holdMany takes n keys at the same moment.
func holdMany(t *testing.T, locker *locco.Locker, n int, ttl time.Duration, opts ...locco.CallOption) []*locco.Lock {
	t.Helper()
	locks := make([]*locco.Lock, n)
	for i := range locks {
		locks[i] = hold(t, locker, manyKey(i), ttl, opts...)
	}
	return locks
}

func manyKey(i int) string {
	return string([]rune{'k', rune('0' + i/100), rune('0' + i/10%10), rune('0' + i%10)})
}

// spec 8.5: extensions that fall due together go together, with a verdict for
// each key; one bad entry harms no other.
func TestDueExtensionsGoTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		locks := holdMany(t, locker, 6, 9*time.Second, locco.AutoExtend(day))
		calls := logCalls(b)
		b.Steal(context.Background(), manyKey(1), time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.ExtendMany, Key: manyKey(2), Times: 1, Effect: loccotest.FailRequest(errBroken)})
		elapse(3 * time.Second)
		wantTimes(t, "calls for several", calls.times(loccotest.ExtendMany, ""), 3*time.Second)
		wantTimes(t, "calls for one", calls.times(loccotest.Extend, ""))
		for i, lock := range locks {
			switch i {
			case 1:
				wantLost(t, lock, locco.ReasonExtend, nil)
				wantEvents(t, h, lock.Key(), "acquired, lost extend")
			case 2:
				wantState(t, lock, locco.StateHeld)
				wantEvents(t, h, lock.Key(), "acquired, extend failed")
				if got := lock.Remaining(); got != 5910*time.Millisecond {
					t.Errorf("Remaining of the failed one = %v; want its old lease, 5.91s", got)
				}
			default:
				wantEvents(t, h, lock.Key(), "acquired, extended")
				if got := lock.Remaining(); got != 8910*time.Millisecond {
					t.Errorf("Remaining = %v; want 8.91s", got)
				}
			}
		}
		elapse(3 * time.Second)
		wantTimes(t, "extensions of the failed one", calls.times(loccotest.AnyExtend, manyKey(2)), 3*time.Second, 4*time.Second)
		wantTimes(t, "calls for several", calls.times(loccotest.ExtendMany, ""), 3*time.Second, 6*time.Second)
	})
}

// spec 8.5, 4.4: a call for several that fails as a whole is an error of each.
func TestGroupFailsAsAWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		locks := holdMany(t, locker, 3, 9*time.Second, locco.AutoExtend(day))
		calls := logCalls(b)
		b.Inject(loccotest.Fault{Op: loccotest.ExtendMany, Times: 1, Effect: loccotest.DropAnswer()})
		elapse(6 * time.Second)
		for _, lock := range locks {
			wantEvents(t, h, lock.Key(), "acquired, extend failed")
			wantState(t, lock, locco.StateHeld)
		}
		err := h.last(locco.EventExtendFailed).Err
		if !errors.Is(err, locco.ErrLate) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v; want ErrLate, as for a single one", err)
		}
		elapse(time.Second)
		wantTimes(t, "calls for several", calls.times(loccotest.ExtendMany, ""), 3*time.Second, 7*time.Second)
	})
}

// spec 4.2: a tick may come a little early to share a call, but not by itself.
func TestEarlyTicksShareACall(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		calls := logCalls(b)
		hold(t, locker, "a", 9*s, locco.AutoExtend(day))
		time.Sleep(100 * ms)
		hold(t, locker, "b", 9*s, locco.AutoExtend(day)) // just near enough
		time.Sleep(1)
		hold(t, locker, "c", 9*s, locco.AutoExtend(day)) // not any more
		elapse(8 * s)
		wantTimes(t, "extensions of a", calls.times(loccotest.AnyExtend, "a"), 3*s, 6*s)
		wantTimes(t, "extensions of b", calls.times(loccotest.AnyExtend, "b"), 3*s, 6*s)
		wantTimes(t, "extensions of c", calls.times(loccotest.AnyExtend, "c"), 3100*ms+1, 6100*ms+1)
	})
}

// spec 4.2: where the backend extends one at a time, each tick is exact.
func TestNoEarlyTicksWithoutGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, plainStore{b})
		calls := logCalls(b)
		hold(t, locker, "a", 9*time.Second, locco.AutoExtend(day))
		time.Sleep(time.Millisecond)
		hold(t, locker, "b", 9*time.Second, locco.AutoExtend(day))
		elapse(4 * time.Second)
		wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, ""), 3*time.Second, 3*time.Second+time.Millisecond)
	})
}

// spec 8.5, 8: every call is bounded by the lease it asks for, so leases shorter
// than the call timeout do not share a call with longer ones.
func TestGroupsShareABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		for key, ttl := range map[string]time.Duration{
			"short": 2 * time.Second, "short2": 2 * time.Second, "long": 9 * time.Second, "longer": 20 * time.Second,
		} {
			hold(t, locker, key, ttl, locco.AutoExtend(day), locco.ExtendEvery(time.Second))
		}
		calls := logCalls(b)
		elapse(time.Second)
		calls.mu.Lock()
		defer calls.mu.Unlock()
		if len(calls.calls) != 2 {
			t.Errorf("calls = %d; want 2", len(calls.calls))
		}
		for _, call := range calls.calls {
			short := slices.ContainsFunc(call.Leases, func(l locco.Lease) bool { return l.TTL < 3*time.Second })
			long := slices.ContainsFunc(call.Leases, func(l locco.Lease) bool { return l.TTL > 3*time.Second })
			if short && long || len(call.Leases) != 2 {
				t.Errorf("%v has short leases %v and long ones %v; want two of one kind", call, short, long)
			}
		}
	})
}

// spec 8.5: a group has a bound, so that no exchange is endless.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		locks := holdMany(t, locker, 999, 9*time.Second, locco.AutoExtend(day))
		calls := logCalls(b)
		elapse(3 * time.Second)
		if n := b.Calls(loccotest.ExtendMany); n < 2 || n > 10 {
			t.Errorf("calls for 999 locks = %d; want a few", n)
		}
		calls.mu.Lock()
		for _, call := range calls.calls {
			if len(call.Leases) > 500 {
				t.Errorf("leases in a call = %d; want at most 500", len(call.Leases))
			}
		}
		calls.mu.Unlock()
		for _, lock := range locks {
			if got := lock.Remaining(); got != 8910*time.Millisecond {
				t.Fatalf("Remaining of %q = %v; want 8.91s", lock.Key(), got)
			}
		}
	})
}

// spec 4.2: what a burst of locks leaves behind is still kept right.
func TestHeartbeatsAfterABurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, plainStore{b})
		var locks []*locco.Lock
		for i := range 3000 {
			ttl := 9*time.Second + time.Duration(i*7919%3000)*time.Millisecond
			locks = append(locks, hold(t, locker, fmt.Sprint("k", i), ttl, locco.AutoExtend(day)))
		}
		var kept []*locco.Lock
		for i := range locks {
			lock := locks[i*1009%3000]
			if i%100 == 50 {
				kept = append(kept, lock)
			} else if err := lock.Release(context.Background()); err != nil {
				t.Errorf("Release = %v; want nil", err)
			}
		}
		if n := len(locker.Held()); n != len(kept) {
			t.Errorf("Held = %d locks; want %d", n, len(kept))
		}
		calls := logCalls(b)
		elapse(5 * time.Second)
		for _, lock := range kept {
			wantTimes(t, "extensions of "+lock.Key(), calls.times(loccotest.Extend, lock.Key()), lock.TTL()/3)
		}
	})
}

// manyFunc is a store that answers ExtendMany in its own way.
type manyFunc struct {
	*store
	many func(ctx context.Context, ls []locco.Lease) []locco.Verdict
}

func (m *manyFunc) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	return m.many(ctx, ls)
}

// spec 4.6, 8.5: of a group that is about to be sent, those that were released
// meanwhile are left out.
func TestReleaseOvertakesAGroupThatIsDue(t *testing.T) {
	t.Parallel()
	for _, released := range []int{1, 2} {
		t.Run(fmt.Sprint("Released", released), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &manyFunc{store: newStore()}
				b.immediate = true // one goroutine sends one group after the other
				var mu sync.Mutex
				var others []*locco.Lock
				var sent []string
				b.many = func(ctx context.Context, ls []locco.Lease) []locco.Verdict {
					mu.Lock()
					defer mu.Unlock()
					for _, lock := range others {
						lock.Release(ctx)
					}
					for _, l := range ls {
						sent = append(sent, l.Key)
					}
					return b.store.ExtendMany(ctx, ls)
				}
				locker := holdingLocker(t, b)
				short := []locco.CallOption{locco.AutoExtend(day), locco.ExtendEvery(time.Second)}
				hold(t, locker, "a", 2*time.Second, short...) // its group goes first
				hold(t, locker, "b", 2*time.Second, short...)
				long := []*locco.Lock{hold(t, locker, "c", 9*time.Second, short...), hold(t, locker, "d", 9*time.Second, short...)}
				mu.Lock()
				others = long[:released]
				mu.Unlock()
				elapse(1500 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				slices.Sort(sent)
				if got, want := strings.Join(sent, " "), []string{"a b d", "a b"}[released-1]; got != want {
					t.Errorf("extended together: %s; want %s", got, want)
				}
			})
		})
	}
}

// spec 8.5: a key without a verdict has a driver's error, not a loss.
func TestVerdictsThatAreMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &manyFunc{store: newStore()}
		b.many = func(ctx context.Context, ls []locco.Lease) []locco.Verdict {
			return b.store.ExtendMany(ctx, ls)[:1]
		}
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		locks := holdMany(t, locker, 3, 9*time.Second, locco.AutoExtend(day))
		elapse(3 * time.Second)
		var extended, failed int
		for _, lock := range locks {
			wantState(t, lock, locco.StateHeld)
			switch h.of(lock.Key()) {
			case "acquired, extended":
				extended++
			case "acquired, extend failed":
				failed++
			}
		}
		if extended != 1 || failed != 2 {
			t.Errorf("extended, failed = %d, %d; want 1, 2", extended, failed)
		}
		if err := h.last(locco.EventExtendFailed).Err; err == nil {
			t.Error("the error of a missing verdict is nil")
		}
	})
}

// spec 8.5: more verdicts than keys.
func TestVerdictsThatAreTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &manyFunc{store: newStore()}
		b.many = func(ctx context.Context, ls []locco.Lease) []locco.Verdict {
			return append(b.store.ExtendMany(ctx, ls), locco.Verdict{})
		}
		locker := holdingLocker(t, b)
		locks := holdMany(t, locker, 3, 9*time.Second, locco.AutoExtend(day))
		elapse(3 * time.Second)
		for _, lock := range locks {
			if got := lock.Remaining(); got != 8910*time.Millisecond {
				t.Errorf("Remaining = %v; want 8.91s", got)
			}
		}
	})
}

// spec 8.5, 7.1: a backend that turns out not to extend several at once is asked
// one by one from then on, and a notice says so once.
func TestGroupsThatAreUnsupported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(plainStore{newStore()})
		calls := logCalls(b)
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		locks := holdMany(t, locker, 4, 9*time.Second, locco.AutoExtend(day))
		elapse(7 * time.Second)
		for _, lock := range locks {
			wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, lock.Key()), 3*time.Second, 6*time.Second)
			wantEvents(t, h, lock.Key(), "acquired, extended, extended")
		}
		if ev := h.last(locco.EventNotice); !errors.Is(ev.Err, errors.ErrUnsupported) {
			t.Errorf("notice error = %v; want ErrUnsupported", ev.Err)
		}
		if got := h.of(""); got != "notice" {
			t.Errorf("events without a key = %s; want one notice", got)
		}
	})
}

// spec 8.5: one slow or bad key of those that are asked one by one at last does
// not take the others' time.
func TestUnsupportedGroupWithAHangingKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(plainStore{newStore()})
		locker := holdingLocker(t, b)
		locks := holdMany(t, locker, 4, 9*time.Second, locco.AutoExtend(day))
		for _, lock := range locks[:2] {
			b.Inject(loccotest.Fault{Op: loccotest.Extend, Key: lock.Key(), Times: 1, Effect: loccotest.DropRequest()})
		}
		elapse(3500 * time.Millisecond)
		for i, lock := range locks {
			want := 8410 * time.Millisecond
			if i < 2 {
				want = 5410 * time.Millisecond
			}
			if got := lock.Remaining(); got != want {
				t.Errorf("Remaining of %q = %v; want %v", lock.Key(), got, want)
			}
		}
	})
}

// spec 4.2: no goroutine per lock while idle. Not parallel: it counts the
// goroutines of the process.
func TestIdleLocksCostNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		before := runtime.NumGoroutine()
		holdMany(t, locker, 500, time.Hour, locco.AutoExtend(day))
		elapse(time.Minute)
		if n := runtime.NumGoroutine() - before; n > 5 {
			t.Errorf("goroutines for 500 idle locks = %d; want none", n)
		}
		elapse(3 * time.Hour)
		if n := runtime.NumGoroutine() - before; n > 5 {
			t.Errorf("goroutines for 500 idle locks after heartbeats = %d; want none", n)
		}
		if n := len(locker.Held()); n != 500 {
			t.Errorf("Held = %d locks; want 500", n)
		}
	})
}
