package loccotest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// Every method meets every effect in the same way, so one table has them all.
func TestEffects(t *testing.T) {
	t.Parallel()
	const d = 300 * time.Millisecond // before the deadline of a second
	const tooLong = time.Second      // at the deadline is not before it
	for _, tc := range []struct {
		name    string
		effect  loccotest.Effect
		applied bool          // the request reached the backend
		took    time.Duration // until the call returned
		want    error         // nil: the backend's own answer
	}{
		{"None", loccotest.Effect{}, true, 0, nil},
		{"DropRequest", loccotest.DropRequest(), false, time.Second, context.DeadlineExceeded},
		{"DropAnswer", loccotest.DropAnswer(), true, time.Second, context.DeadlineExceeded},
		{"DelayRequest", loccotest.DelayRequest(d), true, d, nil},
		{"DelayRequestTooLong", loccotest.DelayRequest(tooLong), false, time.Second, context.DeadlineExceeded},
		{"DelayAnswer", loccotest.DelayAnswer(d), true, d, nil},
		{"DelayAnswerTooLong", loccotest.DelayAnswer(tooLong), true, time.Second, context.DeadlineExceeded},
		{"LateAnswer", loccotest.LateAnswer(d), true, d, nil},
		{"LateAnswerTooLong", loccotest.LateAnswer(2 * tooLong), true, 2 * time.Second, nil},
		{"FailRequest", loccotest.FailRequest(errDriver), false, 0, errDriver},
		{"FailRequestNil", loccotest.FailRequest(nil), false, 0, loccotest.ErrInjected},
		{"FailAnswer", loccotest.FailAnswer(errDriver), true, 0, errDriver},
		{"FailAnswerNil", loccotest.FailAnswer(nil), true, 0, loccotest.ErrInjected},
	} {
		for _, m := range methods {
			t.Run(tc.name+"/"+m.op.String(), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, ctx context.Context) {
					inner := &full{}
					m.prepare(t, inner)
					b := loccotest.Wrap(inner)
					inject(b, m.op, tc.effect)
					start := time.Now()
					ok, err := m.call(ctx, b)
					wantTook(t, start, tc.took)
					if ok != (tc.want == nil) || !errors.Is(err, tc.want) {
						t.Errorf("%v = %v, %v; want %v, %v", m.op, ok, err, tc.want == nil, tc.want)
					}
					if got := m.applied(inner); got != tc.applied {
						t.Errorf("%v reached the backend: %v; want %v", m.op, got, tc.applied)
					}
					if got := b.Calls(m.op); got != 1 {
						t.Errorf("Calls(%v) = %d; want 1", m.op, got)
					}
				})
			})
		}
	}
}

// methods has one call of every method on key "k", for token "t" or, where the
// key changes hands, "u". Its answer is positive.
var methods = []struct {
	op      loccotest.Op
	prepare func(t *testing.T, inner *full)
	call    func(ctx context.Context, b *loccotest.Backend) (bool, error)
	applied func(inner *full) bool
}{
	{
		loccotest.Acquire, free,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) {
			g, err := b.Acquire(ctx, lease("k", "t"))
			return g.OK, err
		},
		func(inner *full) bool { return inner.rows["k"].token == "t" },
	},
	{
		loccotest.Extend, held,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) { return b.Extend(ctx, lease("k", "t")) },
		func(inner *full) bool { return inner.fence == 2 },
	},
	{
		loccotest.Release, held,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) { return b.Release(ctx, "k", "t") },
		func(inner *full) bool { return len(inner.rows) == 0 },
	},
	{
		loccotest.Holds, held,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) { return b.Holds(ctx, "k", "t") },
		func(inner *full) bool { return inner.looks == 1 },
	},
	{
		loccotest.Transfer, held,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) {
			g, err := b.Transfer(ctx, "t", lease("k", "u"))
			return g.OK, err
		},
		func(inner *full) bool { return inner.rows["k"].token == "u" },
	},
	{
		loccotest.AcquireMany, free,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) {
			grants, refused, err := b.AcquireMany(ctx, []locco.Lease{lease("j", "t"), lease("k", "t")})
			return len(grants) == 2 && grants[0].OK && grants[1].OK && refused == -1, err
		},
		func(inner *full) bool { return inner.rows["j"].token == "t" && inner.rows["k"].token == "t" },
	},
	{
		loccotest.ExtendMany, held,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) {
			v := b.ExtendMany(ctx, []locco.Lease{lease("k", "t")})
			return v[0].OK, v[0].Err
		},
		func(inner *full) bool { return inner.fence == 2 },
	},
	{
		loccotest.Watch, free,
		func(ctx context.Context, b *loccotest.Backend) (bool, error) {
			wake, stop, err := b.Watch(ctx, "k")
			if err == nil {
				stop()
			}
			return wake != nil, err
		},
		// A watch whose answer was lost is stopped, or nobody ever would.
		func(inner *full) bool { return len(inner.wakes["k"]) == 1 && inner.stopped() == 1 },
	},
}

func free(*testing.T, *full) {}

func held(t *testing.T, inner *full) {
	t.Helper()
	grant(t, inner, lease("k", "t"))
}

// A refusal and a driver's own error pass through as they are.
func TestAnswersPassThrough(t *testing.T) {
	t.Parallel()
	for _, m := range methods {
		t.Run(m.op.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				inner := &full{}
				inner.err, inner.atomicErr = errDriver, errDriver
				if ok, err := m.call(ctx, loccotest.Wrap(inner)); ok || err != errDriver {
					t.Errorf("%v = %v, %v; want false, %v", m.op, ok, err, errDriver)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := &full{}
		grant(t, inner, lease("k", "other"))
		b := loccotest.Wrap(inner)
		if g, err := b.Acquire(ctx, lease("k", "t")); g.OK || err != nil {
			t.Errorf("Acquire of a key that is held = %+v, %v; want a refusal", g, err)
		}
		if ok, err := b.Extend(ctx, lease("k", "t")); ok || err != nil {
			t.Errorf("Extend of a key that is held = %v, %v; want false, <nil>", ok, err)
		}
		if _, refused, err := b.AcquireMany(ctx, []locco.Lease{lease("j", "t"), lease("k", "t")}); refused != 1 || err != nil {
			t.Errorf("AcquireMany with a key that is held = %d, %v; want 1, <nil>", refused, err)
		}
	})
}

// The end of the context is answered at once, also when it is not its deadline.
func TestCanceledWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, effect := range map[string]loccotest.Effect{
		"DropRequest":  loccotest.DropRequest(),
		"DelayRequest": loccotest.DelayRequest(500 * time.Millisecond),
		"DropAnswer":   loccotest.DropAnswer(),
		"DelayAnswer":  loccotest.DelayAnswer(500 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				b := loccotest.Wrap(&plain{})
				inject(b, loccotest.Acquire, effect)
				start := time.Now()
				time.AfterFunc(100*time.Millisecond, cancel)
				if g, err := b.Acquire(ctx, lease("k", "t")); g.OK || !errors.Is(err, context.Canceled) {
					t.Errorf("Acquire = %+v, %v; want an error that matches %v", g, err, context.Canceled)
				}
				wantTook(t, start, 100*time.Millisecond)
			})
		})
	}
}

// Which calls a fault hits is seen by releases, of a key that nobody has.
func TestFaultMatches(t *testing.T) {
	t.Parallel()
	fail := loccotest.FailRequest(errDriver)
	release := func(key string) func(*loccotest.Backend) error {
		return func(b *loccotest.Backend) error {
			_, err := b.Release(t.Context(), key, "t")
			return err
		}
	}
	k, j := release("k"), release("j")
	extendMany := func(b *loccotest.Backend) error {
		return b.ExtendMany(t.Context(), []locco.Lease{lease("j", "t"), lease("k", "t")})[0].Err
	}
	type calls []func(*loccotest.Backend) error
	for _, tc := range []struct {
		name   string
		faults []loccotest.Fault
		calls  calls
		want   []bool // the call fails
	}{
		{
			"EveryCall",
			[]loccotest.Fault{{Effect: fail}},
			calls{k, j, extendMany, k},
			[]bool{true, true, true, true},
		},
		{
			"ItsMethod",
			[]loccotest.Fault{{Op: loccotest.AnyExtend, Effect: fail}},
			calls{k, extendMany},
			[]bool{false, true},
		},
		{
			"ItsKey",
			[]loccotest.Fault{{Key: "k", Effect: fail}},
			calls{j, k, j, k},
			[]bool{false, true, false, true},
		},
		{
			"ItsTimes",
			[]loccotest.Fault{{Key: "k", Times: 2, Effect: fail}},
			calls{k, j, k, k},
			[]bool{true, false, true, false},
		},
		{
			"Skip",
			[]loccotest.Fault{{Key: "k", Skip: 1, Times: 1, Effect: fail}},
			calls{j, k, k, k},
			[]bool{false, false, true, false},
		},
		{
			"OldestFirst",
			[]loccotest.Fault{{Times: 1}, {Times: 1, Effect: fail}, {Times: 1}, {Key: "k", Effect: fail}},
			calls{k, j, k, j, k, k},
			[]bool{false, true, false, false, true, true},
		},
		{
			// The other fault's call is skipped, and this one's counts.
			"SkippedCallMeetsTheNext",
			[]loccotest.Fault{{Skip: 1}, {Times: 1, Effect: fail}},
			calls{k, k},
			[]bool{true, false},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := loccotest.Wrap(&full{})
			for _, f := range tc.faults {
				b.Inject(f)
			}
			for i, call := range tc.calls {
				if got := call(b) != nil; got != tc.want[i] {
					t.Errorf("call %d fails: %v; want %v", i, got, tc.want[i])
				}
			}
			b.Clear()
			for i, call := range tc.calls {
				if err := call(b); err != nil {
					t.Errorf("call %d after Clear = %v; want no error", i, err)
				}
			}
		})
	}
}

// An injected Fault is the caller's no more: it counts for itself.
func TestInjectCopies(t *testing.T) {
	t.Parallel()
	b := loccotest.Wrap(&plain{})
	f := loccotest.Fault{Times: 1, Effect: loccotest.FailRequest(errDriver)}
	b.Inject(f)
	b.Inject(f)
	for i, want := range []error{errDriver, errDriver, nil} {
		if _, err := b.Release(t.Context(), "k", "t"); err != want {
			t.Errorf("Release %d = %v; want %v", i, err, want)
		}
	}
}

// One bad entry harms no other.
func TestExtendManySinglesOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		fences int64 // leases that were renewed
	}{
		{"FailRequest", loccotest.FailRequest(errDriver), 2},
		{"FailAnswer", loccotest.FailAnswer(errDriver), 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				inner := &full{}
				ls := []locco.Lease{lease("a", "t"), lease("b", "t"), lease("c", "t")}
				for _, l := range ls {
					grant(t, inner, l)
				}
				inner.fence = 0
				b := loccotest.Wrap(inner)
				b.Inject(loccotest.Fault{Op: loccotest.ExtendMany, Key: "b", Times: 1, Effect: tc.effect})
				want := []locco.Verdict{{OK: true}, {Err: errDriver}, {OK: true}}
				got := b.ExtendMany(ctx, ls)
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("verdict %d = %+v; want %+v", i, got[i], want[i])
					}
				}
				if inner.fence != tc.fences {
					t.Errorf("%d leases were renewed; want %d", inner.fence, tc.fences)
				}
				for i, v := range b.ExtendMany(ctx, ls) {
					if !v.OK || v.Err != nil {
						t.Errorf("second verdict %d = %+v; want OK", i, v)
					}
				}
			})
		})
	}
}

// A fault of the exchange concerns all its verdicts, whichever key it names.
func TestExtendManyAsAWhole(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]loccotest.Fault{
		"FailWithoutAKey": {Effect: loccotest.FailRequest(errDriver)},
		"DropOfOneKey":    {Key: "b", Effect: loccotest.DropAnswer()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				b := loccotest.Wrap(&full{})
				b.Inject(f)
				for i, v := range b.ExtendMany(ctx, []locco.Lease{lease("a", "t"), lease("b", "t")}) {
					if v.OK || v.Err == nil {
						t.Errorf("verdict %d = %+v; want an error", i, v)
					}
				}
			})
		})
	}
}

// A backend that breaks the contract is shown as it is, also to the contract
// suite.
func TestExtendManyOfABrokenBackend(t *testing.T) {
	t.Parallel()
	b := loccotest.Wrap(&full{short: true})
	if got := b.ExtendMany(t.Context(), []locco.Lease{lease("a", "t"), lease("b", "t")}); len(got) != 1 {
		t.Errorf("ExtendMany = %d verdicts; want the backend's 1", len(got))
	}
}

func TestTransient(t *testing.T) {
	t.Parallel()
	err := loccotest.Transient(errDriver)
	if !errors.Is(err, errDriver) || err.Error() != errDriver.Error() {
		t.Errorf("Transient(%v) = %v; want it to wrap the error and to read the same", errDriver, err)
	}
	if err := loccotest.Transient(nil); !errors.Is(err, loccotest.ErrInjected) {
		t.Errorf("Transient(nil) = %v; want %v", err, loccotest.ErrInjected)
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		got  interface{ String() string }
		want string
	}{
		{loccotest.Acquire, "Acquire"},
		{loccotest.Watch, "Watch"},
		{loccotest.AnyExtend, "Extend|ExtendMany"},
		{loccotest.Op(0), ""},
		{loccotest.Call{Op: loccotest.Release, Leases: []locco.Lease{{Key: "k"}}}, `Release of "k"`},
		{loccotest.Call{Op: loccotest.ExtendMany, Leases: make([]locco.Lease, 3)}, `ExtendMany of "" and 2 more`},
		{loccotest.Call{Op: loccotest.ExtendMany}, "ExtendMany"},
	} {
		if got := tc.got.String(); got != tc.want {
			t.Errorf("String() = %q; want %q", got, tc.want)
		}
	}
}
