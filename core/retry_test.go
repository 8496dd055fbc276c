package locco_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
)

// policyOf returns the policy that a lock shows.
func policyOf(t *testing.T, locker *locco.Locker, opts ...locco.CallOption) locco.RetryPolicy {
	t.Helper()
	lock, err := locker.Acquire(context.Background(), "k", time.Minute, opts...)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	defer lock.Release(context.Background())
	return lock.Retry()
}

// wantPolicy compares all but the function.
func wantPolicy(t *testing.T, what string, got, want locco.RetryPolicy) {
	t.Helper()
	if (got.Backoff == nil) != (want.Backoff == nil) {
		t.Errorf("%s: Backoff set = %v; want %v", what, got.Backoff != nil, want.Backoff != nil)
	}
	if got.Retries != want.Retries || got.Delay != want.Delay || got.Timeout != want.Timeout {
		t.Errorf("%s = %+v; want %+v", what, got, want)
	}
}

// Fields merge one by one: built-in, locker, call.
//
// spec 3.2
func TestRetryLayers(t *testing.T) {
	t.Parallel()
	const d, s = 200 * time.Millisecond, time.Second
	backoff := locco.ConstantBackoff(7 * s)
	type layer = []locco.CallOption
	type policy = locco.RetryPolicy
	for _, tc := range []struct {
		name         string
		locker, call layer
		want         policy
	}{
		{"BuiltIn", nil, nil, policy{Retries: 10, Delay: d}},
		{"LockerCount", layer{locco.Retries(3)}, nil, policy{Retries: 3, Delay: d}},
		{"LockerDelay", layer{locco.RetryDelay(s)}, nil, policy{Retries: 10, Delay: s}},
		{"LockerTimeoutRemovesCount", layer{locco.RetryTimeout(s)}, nil, policy{Retries: locco.Unlimited, Delay: d, Timeout: s}},
		{"LockerTimeoutAndCount", layer{locco.RetryTimeout(s), locco.Retries(4)}, nil, policy{Retries: 4, Delay: d, Timeout: s}},
		{"LockerCountAndTimeout", layer{locco.Retries(4), locco.RetryTimeout(s)}, nil, policy{Retries: 4, Delay: d, Timeout: s}},
		{"LockerForever", layer{locco.RetryForever()}, nil, policy{Retries: locco.Unlimited, Delay: d}},
		{"CallCount", nil, layer{locco.Retries(0)}, policy{Retries: 0, Delay: d}},
		{"CallCountOverLocker", layer{locco.Retries(3), locco.RetryDelay(s)}, layer{locco.Retries(5)}, policy{Retries: 5, Delay: s}},
		{"CallDelayOverLocker", layer{locco.Retries(3), locco.RetryDelay(s)}, layer{locco.RetryDelay(0)}, policy{Retries: 3, Delay: 0}},
		{"CallTimeoutRemovesLockersCount", layer{locco.Retries(3)}, layer{locco.RetryTimeout(s)}, policy{Retries: locco.Unlimited, Delay: d, Timeout: s}},
		{"CallTimeoutAndCount", layer{locco.Retries(3)}, layer{locco.RetryTimeout(s), locco.Retries(2)}, policy{Retries: 2, Delay: d, Timeout: s}},
		{"CallCountKeepsLockersTimeout", layer{locco.RetryTimeout(s)}, layer{locco.Retries(2)}, policy{Retries: 2, Delay: d, Timeout: s}},
		{"CallDelayKeepsLockersTimeout", layer{locco.RetryTimeout(s)}, layer{locco.RetryDelay(s)}, policy{Retries: locco.Unlimited, Delay: s, Timeout: s}},
		{"CallDelayKeepsLockersTimeoutAndCount", layer{locco.RetryTimeout(s), locco.Retries(4)}, layer{locco.RetryDelay(s)}, policy{Retries: 4, Delay: s, Timeout: s}},
		{"CallTimeoutOverLockers", layer{locco.RetryTimeout(s), locco.Retries(4)}, layer{locco.RetryTimeout(2 * s)}, policy{Retries: locco.Unlimited, Delay: d, Timeout: 2 * s}},
		{"CallTakesTimeoutBack", layer{locco.RetryTimeout(s), locco.Retries(4)}, layer{locco.RetryTimeout(0)}, policy{Retries: 4, Delay: d}},
		{"TimeoutThenNone", layer{locco.RetryTimeout(s), locco.RetryTimeout(0)}, nil, policy{Retries: 10, Delay: d}},
		{"CallForever", layer{locco.Retries(4)}, layer{locco.RetryForever()}, policy{Retries: locco.Unlimited, Delay: d}},
		{"CallCountOverForever", layer{locco.RetryForever()}, layer{locco.Retries(1)}, policy{Retries: 1, Delay: d}},
		{"LastCountWins", nil, layer{locco.RetryForever(), locco.Retries(1), locco.Retries(2)}, policy{Retries: 2, Delay: d}},
		{"LastForeverWins", nil, layer{locco.Retries(1), locco.RetryForever()}, policy{Retries: locco.Unlimited, Delay: d}},
		{"LastDelayWins", nil, layer{locco.RetryDelay(s), locco.RetryDelay(2 * s)}, policy{Retries: 10, Delay: 2 * s}},
		{"Backoff", nil, layer{locco.RetryBackoff(backoff)}, policy{Retries: 10, Delay: d, Backoff: backoff}},
		{"LockerBackoffStays", layer{locco.RetryBackoff(backoff)}, layer{locco.Retries(1)}, policy{Retries: 1, Delay: d, Backoff: backoff}},
		{"CallDelayReplacesBackoff", layer{locco.RetryBackoff(backoff)}, layer{locco.RetryDelay(s)}, policy{Retries: 10, Delay: s}},
		{"CallBackoffReplacesDelay", layer{locco.RetryDelay(s)}, layer{locco.RetryBackoff(backoff)}, policy{Retries: 10, Delay: s, Backoff: backoff}},
		{"NilOptions", layer{nil, locco.Retries(3)}, layer{nil, nil}, policy{Retries: 3, Delay: d}},
		{"HoldOptionsAreNoLayer", layer{locco.RetryTimeout(s)}, layer{locco.AutoExtend(time.Hour)}, policy{Retries: locco.Unlimited, Delay: d, Timeout: s}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			locker := newLocker(t, immediateStore(), locco.WithDefaults(tc.locker...))
			wantPolicy(t, "Retry", policyOf(t, locker, tc.call...), tc.want)

			// A view of another locker is one layer more.
			view, err := newLocker(t, immediateStore()).With(tc.locker...)
			if err != nil {
				t.Fatalf("With: %v", err)
			}
			wantPolicy(t, "Retry of a view", policyOf(t, view, tc.call...), tc.want)

			// All lists of the defaults are one layer.
			var lists []locco.Option
			for _, o := range tc.locker {
				lists = append(lists, locco.WithDefaults(o))
			}
			parted := newLocker(t, immediateStore(), lists...)
			wantPolicy(t, "Retry with defaults in parts", policyOf(t, parted, tc.call...), tc.want)

			// And no call changes the defaults.
			wantPolicy(t, "Retry of the next call", policyOf(t, locker), policyOf(t, parted))
		})
	}
}

// Every way to take a lock shows its policy, also the one that does not use it.
//
// spec 3.2, 5.1
func TestRetryShown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	want := locco.RetryPolicy{Retries: 4, Delay: time.Second, Timeout: time.Minute}
	locker := newLocker(t, immediateStore(), locco.WithDefaults(
		locco.Retries(4), locco.RetryDelay(time.Second), locco.RetryTimeout(time.Minute)))
	lock, err := locker.TryAcquire(ctx, "k", time.Minute)
	if err != nil {
		t.Fatalf("TryAcquire: %v", err)
	}
	wantPolicy(t, "TryAcquire", lock.Retry(), want)
	handle, err := lock.Detach()
	if err != nil {
		t.Fatalf("Detach: %v", err)
	}
	wantPolicy(t, "a detached lock", lock.Retry(), want)
	if lock, err = locker.Attach(ctx, handle, time.Minute); err != nil {
		t.Fatalf("Attach: %v", err)
	}
	wantPolicy(t, "Attach", lock.Retry(), want)
	lock.Release(ctx)
	set, err := locker.AcquireMany(ctx, []string{"a", "b"}, time.Minute, locco.Retries(5))
	if err != nil {
		t.Fatalf("AcquireMany: %v", err)
	}
	defer set.Release(ctx)
	want.Retries = 5
	wantPolicy(t, "AcquireMany", set.Get("b").Retry(), want)
	wantPolicy(t, "a nil Lock", (*locco.Lock)(nil).Retry(), locco.RetryPolicy{})
}

// A view shares the locker, its defaults are its own.
//
// spec 3.2
func TestRetryOfViews(t *testing.T) {
	t.Parallel()
	base := newLocker(t, immediateStore(), locco.WithDefaults(locco.Retries(1)))
	two, err := base.With(locco.Retries(2))
	if err != nil {
		t.Fatalf("With: %v", err)
	}
	timed, err := two.With(locco.RetryTimeout(time.Second))
	if err != nil {
		t.Fatalf("With: %v", err)
	}
	const d = 200 * time.Millisecond
	wantPolicy(t, "base", policyOf(t, base), locco.RetryPolicy{Retries: 1, Delay: d})
	wantPolicy(t, "two", policyOf(t, two), locco.RetryPolicy{Retries: 2, Delay: d})
	wantPolicy(t, "timed", policyOf(t, timed), locco.RetryPolicy{Retries: locco.Unlimited, Delay: d, Timeout: time.Second})
}

// A policy is a value: used twice, two budgets.
//
// spec 3.2
func TestRetryTwoBudgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.take("k", time.Hour)
		locker := newLocker(t, s)
		opts := []locco.CallOption{locco.Retries(2), locco.RetryDelay(time.Second)}
		for range 2 {
			began := time.Now()
			lock, err := locker.Acquire(context.Background(), "k", time.Minute, opts...)
			if lock != nil || err == nil {
				t.Fatalf("Acquire = %v, %v; want an error", lock, err)
			}
			if got := time.Since(began); got != 2*time.Second {
				t.Errorf("Acquire gave up after %v; want 2s", got)
			}
		}
	})
}

// spec 3.3
func TestBackoffs(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		name    string
		backoff locco.Backoff
		attempt int
		want    time.Duration
	}{
		{"Constant", locco.ConstantBackoff(s), 1, s},
		{"ConstantLater", locco.ConstantBackoff(s), math.MaxInt, s},
		{"First", locco.ExponentialBackoff(s, time.Minute), 1, s},
		{"Second", locco.ExponentialBackoff(s, time.Minute), 2, 2 * s},
		{"Third", locco.ExponentialBackoff(s, time.Minute), 3, 4 * s},
		{"LastBelowTheCap", locco.ExponentialBackoff(s, time.Minute), 6, 32 * s},
		{"Cap", locco.ExponentialBackoff(s, time.Minute), 7, time.Minute},
		{"CapForGood", locco.ExponentialBackoff(s, time.Minute), math.MaxInt, time.Minute},
		{"CapIsAPowerOfTwo", locco.ExponentialBackoff(s, 4*s), 3, 4 * s},
		{"CapIsOdd", locco.ExponentialBackoff(s, 4*s+1), 3, 4 * s},
		{"FirstAboveTheCap", locco.ExponentialBackoff(time.Hour, time.Minute), 1, time.Minute},
		{"FirstIsTheCap", locco.ExponentialBackoff(time.Minute, time.Minute), 9, time.Minute},
		{"HugeCap", locco.ExponentialBackoff(1, math.MaxInt64), 63, 1 << 62},
		{"HugeCapReached", locco.ExponentialBackoff(1, math.MaxInt64), 64, math.MaxInt64},
		{"HugeCapForGood", locco.ExponentialBackoff(1, math.MaxInt64), math.MaxInt, math.MaxInt64},
		{"HugeFirst", locco.ExponentialBackoff(math.MaxInt64, math.MaxInt64), 2, math.MaxInt64},
		{"Zero", locco.ExponentialBackoff(0, time.Minute), 5, 0},
		{"ZeroForGood", locco.ExponentialBackoff(0, time.Minute), math.MaxInt, 0},
		{"AttemptZero", locco.ExponentialBackoff(s, time.Minute), 0, s},
		{"AttemptNegative", locco.ExponentialBackoff(s, time.Minute), math.MinInt, s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.backoff(tc.attempt, time.Hour, s); got != tc.want {
				t.Errorf("backoff(%d) = %v; want %v", tc.attempt, got, tc.want)
			}
		})
	}
	// What makes no sense is a wait of nothing, and ends.
	for _, tc := range []struct {
		name    string
		backoff locco.Backoff
	}{
		{"NegativeFirst", locco.ExponentialBackoff(-s, time.Minute)},
		{"MostNegativeFirst", locco.ExponentialBackoff(math.MinInt64, time.Minute)},
		{"NegativeCap", locco.ExponentialBackoff(s, -s)},
		{"NegativeConstant", locco.ConstantBackoff(-s)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, attempt := range []int{1, 2, 100, math.MaxInt} {
				if got := tc.backoff(attempt, 0, 0); got > 0 {
					t.Errorf("backoff(%d) = %v; want none", attempt, got)
				}
			}
		})
	}
}

// spec 3.3
func TestJitter(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		name        string
		wait        time.Duration
		share       float64
		least, most time.Duration
	}{
		{"Half", s, 0.5, s / 2, s},
		{"Full", s, 1, 0, s},
		{"None", s, 0, s, s},
		{"BelowNone", s, -3, s, s},
		{"AboveFull", s, 7, 0, s},
		{"Infinite", s, math.Inf(1), 0, s},
		{"NegativeInfinite", s, math.Inf(-1), s, s},
		{"NotANumber", s, math.NaN(), 0, s},
		{"NoWait", 0, 1, 0, 0},
		{"Longest", math.MaxInt64, 1, 0, math.MaxInt64},
		{"LongestHalf", math.MaxInt64, 0.5, math.MaxInt64/2 - 1, math.MaxInt64},
		{"Nanosecond", 1, 1, 0, 1},
		{"Negative", -s, 1, -s, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var seen [2]bool // of the lower and of the upper half
			for range 200 {
				got := locco.Jitter(locco.ConstantBackoff(tc.wait), tc.share)(1, 0, 0)
				if got < tc.least || got > tc.most {
					t.Fatalf("wait = %v; want %v to %v", got, tc.least, tc.most)
				}
				if got < tc.least+(tc.most-tc.least)/2 {
					seen[0] = true
				} else {
					seen[1] = true
				}
			}
			if tc.most-tc.least > s/10 && !math.IsNaN(tc.share) && seen != [2]bool{true, true} {
				t.Errorf("waits are in one half of %v to %v only", tc.least, tc.most)
			}
		})
	}
	t.Run("PassesOn", func(t *testing.T) {
		t.Parallel()
		got := locco.Jitter(func(attempt int, elapsed, previous time.Duration) time.Duration {
			return time.Duration(attempt) + elapsed + previous
		}, 0)(3, 10, 100)
		if got != 113 {
			t.Errorf("wait = %d; want 113: attempt, elapsed and previous are passed on", got)
		}
	})
}

// What a delay function returns is brought into bounds, and it gets what it was
// promised.
//
// spec 3.3, 3.4
func TestBackoffIsAsked(t *testing.T) {
	t.Parallel()
	type asked struct {
		attempt           int
		elapsed, previous time.Duration
	}
	for _, tc := range []struct {
		name  string
		waits []time.Duration // returned
		asked []asked
	}{
		{
			"Waits",
			[]time.Duration{time.Second, 3 * time.Second, 2 * time.Second},
			[]asked{{1, 0, 0}, {2, time.Second, time.Second}, {3, 4 * time.Second, 3 * time.Second}},
		},
		{
			"NegativeCountsAsNone",
			[]time.Duration{-time.Hour, time.Second, math.MinInt64},
			[]asked{{1, 0, 0}, {2, 0, 0}, {3, time.Second, time.Second}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.noLeft = true
				s.take("k", time.Hour)
				var got []asked
				locker := newLocker(t, plainStore{s})
				began := time.Now()
				_, err := locker.Acquire(context.Background(), "k", time.Minute, locco.Retries(len(tc.waits)),
					locco.RetryBackoff(func(attempt int, elapsed, previous time.Duration) time.Duration {
						got = append(got, asked{attempt, elapsed, previous})
						return tc.waits[len(got)-1]
					}))
				if err == nil {
					t.Fatal("Acquire = nil; want an error")
				}
				if len(got) != len(tc.asked) {
					t.Fatalf("asked %d times: %v; want %d", len(got), got, len(tc.asked))
				}
				total := time.Duration(0)
				for i := range got {
					if got[i] != tc.asked[i] {
						t.Errorf("question %d = %+v; want %+v", i, got[i], tc.asked[i])
					}
					total += max(tc.waits[i], 0)
				}
				if elapsed := time.Since(began); elapsed != total {
					t.Errorf("gave up after %v; want %v", elapsed, total)
				}
				if got := s.callCount(); got != len(tc.waits)+1 {
					t.Errorf("looks = %d; want %d", got, len(tc.waits)+1)
				}
			})
		})
	}
	t.Run("Endless", func(t *testing.T) { // one that is too long is MaxDuration
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.noLeft = true
			s.take("k", 2*locco.MaxDuration)
			locker := newLocker(t, plainStore{s})
			began := time.Now()
			_, err := locker.Acquire(context.Background(), "k", time.Minute, locco.Retries(1),
				locco.RetryBackoff(locco.ConstantBackoff(math.MaxInt64)))
			if err == nil || time.Since(began) != locco.MaxDuration {
				t.Errorf("Acquire = %v after %v; want an error after %v", err, time.Since(began), locco.MaxDuration)
			}
		})
	})
}

// A delay function that panics ends its own call only: the waiters behind it get
// their turn, also when it was handed the key meanwhile.
//
// spec 3.5, 3.6
func TestBackoffPanics(t *testing.T) {
	t.Parallel()
	const message = "no more patience"
	for _, tc := range []struct {
		name  string
		local bool // the holder is of this locker, and releases while the function runs
	}{{"WhileWaiting", false}, {"WhileGranted", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				s := newStore()
				locker := newLocker(t, s)
				var holder *locco.Lock
				if tc.local {
					holder, _ = locker.Acquire(ctx, "k", 10*time.Second)
				} else {
					s.take("k", 10*time.Second)
				}
				first, second := make(chan any, 1), make(chan error, 1)
				go func() {
					defer func() { first <- recover() }()
					locker.Acquire(ctx, "k", time.Minute, locco.RetryForever(),
						locco.RetryBackoff(func(attempt int, _, _ time.Duration) time.Duration {
							if attempt == 3 {
								holder.Release(ctx)
								panic(message)
							}
							return time.Second
						}))
				}()
				synctest.Wait()
				go func() {
					lock, err := locker.Acquire(ctx, "k", time.Minute, locco.RetryForever())
					lock.Release(ctx)
					second <- err
				}()
				if got := <-first; got != message {
					t.Errorf("recovered %v; want the panic of the delay function", got)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				select {
				case err := <-second:
					if err != nil {
						t.Errorf("Acquire of the one behind = %v; want nil", err)
					}
				default:
					t.Error("the one behind still waits for a key that is free")
					locker.Close(ctx)
					<-second
				}
				if got := s.holder("k"); got != "" {
					t.Errorf("the key is held by %q; want it free", got)
				}
			})
		})
	}
}
