package loccotest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

func TestAbilitiesOfTheInner(t *testing.T) {
	t.Parallel()
	b := loccotest.Wrap(&full{})
	if !b.Fences() {
		t.Error("Fences() = false; want the backend's true")
	}
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{errDriver, false},
		{errPassing, true},
		{loccotest.Transient(errDriver), true},
	} {
		if got := b.Retryable(tc.err); got != tc.want {
			t.Errorf("Retryable(%v) = %v; want %v", tc.err, got, tc.want)
		}
	}
	if err := b.Validate(); err != errSetUp {
		t.Errorf("Validate() = %v; want the backend's %v", err, errSetUp)
	}
	if _, ok := locco.Backend(b).(locco.Immediate); ok {
		t.Error("a Backend is locco.Immediate; want it not to be, since it may block")
	}
}

func TestAbilitiesThatAreMissing(t *testing.T) {
	t.Parallel()
	b := loccotest.Wrap(&plain{})
	b.Inject(loccotest.Fault{Effect: loccotest.FailRequest(errDriver)}) // there is no request to fail
	ctx := t.Context()
	if b.Fences() {
		t.Error("Fences() = true; want false")
	}
	if b.Retryable(errPassing) {
		t.Error("Retryable() = true; want false")
	}
	if !b.Retryable(loccotest.Transient(errDriver)) {
		t.Error("Retryable(Transient) = false; want true")
	}
	if err := b.Validate(); err != nil {
		t.Errorf("Validate() = %v; want no error", err)
	}
	if _, _, err := b.Watch(ctx, "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch = %v; want %v", err, errors.ErrUnsupported)
	}
	if g, err := b.Transfer(ctx, "t", lease("k", "u")); g.OK || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Transfer = %+v, %v; want %v", g, err, errors.ErrUnsupported)
	}
	ls := []locco.Lease{lease("j", "t"), lease("k", "t")}
	if _, refused, err := b.AcquireMany(ctx, ls); refused != -1 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("AcquireMany = %d, %v; want -1, %v", refused, err, errors.ErrUnsupported)
	}
	verdicts := b.ExtendMany(ctx, ls)
	if len(verdicts) != len(ls) {
		t.Errorf("ExtendMany = %d verdicts; want %d", len(verdicts), len(ls))
	}
	for i, v := range verdicts {
		if v.OK || !errors.Is(v.Err, errors.ErrUnsupported) {
			t.Errorf("verdict %d = %+v; want %v", i, v, errors.ErrUnsupported)
		}
	}
	if n := b.Calls(loccotest.Watch | loccotest.Transfer | loccotest.AcquireMany | loccotest.ExtendMany); n != 0 {
		t.Errorf("Calls of what is missing = %d; want 0", n)
	}
}

func TestWrapNil(t *testing.T) {
	t.Parallel()
	err := loccotest.Wrap(nil).Validate()
	if _, ok := errors.AsType[*locco.ValidationError](err); !ok {
		t.Errorf("Validate() = %v; want a *locco.ValidationError", err)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	b := loccotest.Wrap(&full{})
	ctx := t.Context()
	grant(t, b, lease("k", "t"))
	b.Extend(ctx, lease("k", "t"))
	b.ExtendMany(ctx, []locco.Lease{lease("k", "t"), lease("j", "t")})
	b.Release(ctx, "k", "t")
	b.Release(ctx, "k", "t")
	for _, tc := range []struct {
		op   loccotest.Op
		want int
	}{
		{loccotest.Acquire, 1},
		{loccotest.Extend, 1},
		{loccotest.AnyExtend, 2},
		{loccotest.Release, 2},
		{loccotest.Release | loccotest.Acquire, 3},
		{loccotest.Holds, 0},
		{0, 0},
	} {
		if got := b.Calls(tc.op); got != tc.want {
			t.Errorf("Calls(%v) = %d; want %d", tc.op, got, tc.want)
		}
	}
}

func TestOnCall(t *testing.T) {
	t.Parallel()
	b := loccotest.Wrap(&full{})
	ctx := t.Context()
	var calls []loccotest.Call
	b.OnCall(func(c loccotest.Call) { calls = append(calls, c) })
	grant(t, b, lease("k", "t"))
	b.Transfer(ctx, "t", lease("k", "u"))
	b.Release(ctx, "k", "u")
	b.OnCall(nil)
	b.Release(ctx, "k", "u")
	want := []loccotest.Call{
		{Op: loccotest.Acquire, Leases: []locco.Lease{lease("k", "t")}},
		{Op: loccotest.Transfer, Leases: []locco.Lease{lease("k", "u")}, From: "t"},
		{Op: loccotest.Release, Leases: []locco.Lease{{Key: "k", Token: "u"}}},
	}
	same := func(a, b loccotest.Call) bool {
		return a.Op == b.Op && a.From == b.From && slices.Equal(a.Leases, b.Leases)
	}
	if !slices.EqualFunc(calls, want, same) {
		t.Errorf("the hook saw %+v; want %+v", calls, want)
	}
}

// The hook may use the backend, and what it does concerns the call it is told of.
func TestOnCallInjects(t *testing.T) {
	t.Parallel()
	inner := &full{}
	b := loccotest.Wrap(inner)
	ctx := t.Context()
	grant(t, b, lease("k", "t"))
	b.OnCall(func(c loccotest.Call) {
		switch {
		case c.Op != loccotest.Extend:
		case b.Calls(loccotest.Extend) == 2:
			inject(b, loccotest.Extend, loccotest.FailRequest(errDriver))
		case b.Calls(loccotest.Extend) == 3:
			b.Clear()
			if err := b.Steal(ctx, "k", ttl); err != nil {
				t.Errorf("Steal = %v; want no error", err)
			}
		}
	})
	for i, want := range []struct {
		ours bool
		err  error
	}{{true, nil}, {false, errDriver}, {false, nil}} {
		if ours, err := b.Extend(ctx, lease("k", "t")); ours != want.ours || err != want.err {
			t.Errorf("Extend %d = %v, %v; want %v, %v", i, ours, err, want.ours, want.err)
		}
	}
}

// No lock is held while a call hangs: everything else goes on.
func TestHangingCallsAreAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, ctx context.Context) {
		b := loccotest.Wrap(&full{})
		b.Inject(loccotest.Fault{Key: "k", Effect: loccotest.DropRequest()})
		var hanging sync.WaitGroup
		for range 3 {
			hanging.Go(func() {
				_, err := b.Release(ctx, "k", "t")
				wantNoAnswer(t, err)
			})
		}
		time.Sleep(time.Millisecond) // fake: the three hang
		start := time.Now()
		grant(t, b, lease("j", "t"))
		b.Clear()
		grant(t, b, lease("k", "t"))
		if err := b.Steal(ctx, "k", ttl); err != nil {
			t.Errorf("Steal = %v; want no error", err)
		}
		wantTook(t, start, 0)
		hanging.Wait()
		wantTook(t, start, time.Second-time.Millisecond)
	})
}

// Everything at once, for the race detector. The keys are shared; what holds at
// the end is that every key can be taken again.
func TestBackendConcurrentSafe(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ context.Context) {
		inner := &full{}
		b := loccotest.Wrap(inner)
		effects := []loccotest.Effect{
			loccotest.DropRequest(), loccotest.DropAnswer(), loccotest.FailAnswer(nil),
			loccotest.DelayRequest(time.Millisecond), loccotest.LateAnswer(time.Millisecond),
		}
		keys := []string{"a", "b", "c"}
		var all sync.WaitGroup
		for i := range 8 {
			token := string(rune('0' + i))
			all.Go(func() {
				for n := range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					key := keys[(i+n)%len(keys)]
					b.Inject(loccotest.Fault{Key: key, Times: 1, Effect: effects[n%len(effects)]})
					b.LoseWakeups(key, 1)
					_, stop, err := b.Watch(ctx, key)
					b.Acquire(ctx, lease(key, token))
					b.ExtendMany(ctx, []locco.Lease{lease(key, token)})
					if n%10 == 0 {
						b.Steal(ctx, key, time.Millisecond)
						b.Free(ctx, key)
						b.OnCall(func(loccotest.Call) {})
						b.Clear()
					}
					b.Holds(ctx, key, token)
					b.Transfer(ctx, token, lease(key, token+"'"))
					b.Release(ctx, key, token+"'")
					b.Release(ctx, key, token)
					if err == nil {
						stop()
					}
					cancel()
				}
			})
		}
		all.Wait()
		b.Clear()
		for _, key := range keys {
			if err := b.Free(t.Context(), key); err != nil {
				t.Errorf("Free(%q) = %v; want no error", key, err)
			}
			wantHolds(t, &inner.plain, key, "")
		}
	})
}
