package locco_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	locco "github.com/locco-go/locco/core"
)

// wantInvalid checks that err says what is wrong.
func wantInvalid(t *testing.T, what string, err error, field string, value any, rule string) {
	t.Helper()
	var invalid *locco.ValidationError
	if !errors.Is(err, locco.ErrInvalid) || !errors.As(err, &invalid) {
		t.Errorf("%s = %v; want a *ValidationError that matches ErrInvalid", what, err)
		return
	}
	if invalid.Field != field {
		t.Errorf("%s: Field = %q; want %q", what, invalid.Field, field)
	}
	if !reflect.DeepEqual(invalid.Value, value) {
		t.Errorf("%s: Value = %#v; want %#v", what, invalid.Value, value)
	}
	if invalid.Rule == "" || !strings.Contains(invalid.Rule, rule) {
		t.Errorf("%s: Rule = %q; want it to say %q", what, invalid.Rule, rule)
	}
	if text := err.Error(); !utf8.ValidString(text) || len(text) > 500 || strings.Count(text, "locco: ") != 1 {
		t.Errorf("%s: text = %q; want short UTF-8 with the prefix once", what, text)
	}
	for _, other := range []error{
		locco.ErrHeld, locco.ErrLate, locco.ErrLost, locco.ErrReleased, locco.ErrClosed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, other) {
			t.Errorf("%s = %v; want it not to match %v", what, err, other)
		}
	}
}

// wantUntouched checks that nothing was sent.
func wantUntouched(t *testing.T, s *store, what string, before int) {
	t.Helper()
	s.mu.Lock()
	watchers := len(s.watchers)
	s.mu.Unlock()
	if calls := s.callCount() - before; calls != 0 || watchers != 0 {
		t.Errorf("%s made %d calls of the backend and %d watches; want none", what, calls, watchers)
	}
}

// takers are the calls that take a key, a TTL and options.
var takers = []struct {
	name string
	hold bool // takes a HoldOption only
	call func(t *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error
}{
	{"Acquire", false, func(_ *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		lock, err := lr.Acquire(ctx, key, ttl, callOptions(opts)...)
		return dropLock(lock, err)
	}},
	{"TryAcquire", true, func(_ *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		lock, err := lr.TryAcquire(ctx, key, ttl, opts...)
		return dropLock(lock, err)
	}},
	{"WithLock", false, func(t *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		ran := false
		err := lr.WithLock(ctx, key, ttl, func(context.Context, *locco.Lock) error { ran = true; return nil }, callOptions(opts)...)
		return ranUnless(t, ran, err)
	}},
	{"TryWithLock", true, func(t *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		called := false
		ran, err := lr.TryWithLock(ctx, key, ttl, func(context.Context, *locco.Lock) error { called = true; return nil }, opts...)
		if ran != called {
			t.Errorf("ran = %v; want %v", ran, called)
		}
		return ranUnless(t, called, err)
	}},
	{"Do", false, func(t *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		got, err := locco.Do(ctx, lr, key, ttl, func(context.Context, *locco.Lock) (int, error) { return 42, nil }, callOptions(opts)...)
		return ranUnless(t, got == 42, err)
	}},
	{"AcquireMany", false, func(_ *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		set, err := lr.AcquireMany(ctx, []string{"a good key", key}, ttl, callOptions(opts)...)
		if set == nil {
			return err
		}
		return errors.Join(err, set.Release(context.Background()))
	}},
	{"WithLocks", false, func(t *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		ran := false
		err := lr.WithLocks(ctx, []string{key, "a good key"}, ttl, func(context.Context, *locco.LockSet) error { ran = true; return nil }, callOptions(opts)...)
		return ranUnless(t, ran, err)
	}},
	{"Attach", true, func(_ *testing.T, lr *locco.Locker, ctx context.Context, key string, ttl time.Duration, opts ...locco.HoldOption) error {
		lock, err := lr.Attach(ctx, locco.Handle{Key: key, Token: "t"}, ttl, opts...)
		if errors.Is(err, locco.ErrLost) {
			return nil // nobody holds it, which took a call to find out
		}
		return dropLock(lock, err)
	}},
}

func callOptions(opts []locco.HoldOption) []locco.CallOption {
	all := make([]locco.CallOption, len(opts))
	for i, o := range opts {
		all[i] = o
	}
	return all
}

func dropLock(lock *locco.Lock, err error) error {
	if (lock == nil) != (err != nil) {
		return errors.New("a lock and an error, or none of both")
	}
	return errors.Join(err, lock.Release(context.Background()))
}

func ranUnless(t *testing.T, ran bool, err error) error {
	t.Helper()
	if ran != (err == nil) {
		t.Errorf("callback ran = %v with error %v; want one of them", ran, err)
	}
	return err
}

// immediate is a store whose calls start no goroutine.
func immediateStore() *store {
	s := newStore()
	s.immediate = true
	return s
}

// spec 1.3, 1.9
func TestValidationOfArguments(t *testing.T) {
	t.Parallel()
	const most = locco.MaxDuration
	long := strings.Repeat("k", 1025)
	type args struct {
		ctx context.Context
		key string
		ttl time.Duration
	}
	good := args{context.Background(), "k", time.Second}
	ttl := func(ttl time.Duration) args { return args{good.ctx, good.key, ttl} }
	key := func(key string) args { return args{good.ctx, key, good.ttl} }
	for _, tc := range []struct {
		name  string
		args  args
		field string
		value any
		rule  string
	}{
		{"NilContext", args{nil, "k", time.Second}, "ctx", nil, "must not be nil"},
		{"TTLZero", ttl(0), "ttl", time.Duration(0), "at least 1ms"},
		{"TTLTooShort", ttl(time.Millisecond - 1), "ttl", time.Millisecond - 1, "at least 1ms"},
		{"TTLNegative", ttl(-time.Second), "ttl", -time.Second, "at least 1ms"},
		{"TTLMostNegative", ttl(math.MinInt64), "ttl", time.Duration(math.MinInt64), "at least 1ms"},
		{"TTLTooLong", ttl(most + 1), "ttl", most + 1, "at most 87600h0m0s"},
		{"TTLLongest", ttl(math.MaxInt64), "ttl", time.Duration(math.MaxInt64), "at most"},
		{"KeyEmpty", key(""), "key", "", "must not be empty"},
		{"KeyWithNUL", key("a\x00b"), "key", "a\x00b", "NUL"},
		{"KeyIsNUL", key("\x00"), "key", "\x00", "NUL"},
		{"KeyNotUTF8", key("a\xff"), "key", "a\xff", "UTF-8"},
		{"KeyHalfARune", key("é"[:1]), "key", "é"[:1], "UTF-8"},
		{"KeySurrogate", key("\xed\xa0\x80"), "key", "\xed\xa0\x80", "UTF-8"},
		{"KeyTooLong", key(long), "key", long, "at most 1024 bytes"},
		{"KeyTooLongInBytes", key(strings.Repeat("é", 513)), "key", strings.Repeat("é", 513), "at most 1024 bytes"},
	} {
		for _, taker := range takers {
			t.Run(tc.name+"/"+taker.name, func(t *testing.T) {
				t.Parallel()
				s := immediateStore()
				locker := newLocker(t, s)
				err := taker.call(t, locker, tc.args.ctx, tc.args.key, tc.args.ttl)
				wantInvalid(t, taker.name, err, tc.field, tc.value, tc.rule)
				wantUntouched(t, s, taker.name, 0)
			})
		}
	}
	for _, tc := range []struct {
		name string
		args args
	}{
		{"Good", good},
		{"TTLShortest", ttl(time.Millisecond)},
		{"TTLLongest", ttl(most)},
		{"KeyLongest", key(long[1:])},
		{"KeyShortest", key("\x01")},
		{"KeyOfAnything", key(" \t\n{}:*?[]\\\"'世界\U0010FFFF")},
	} {
		for _, taker := range takers {
			t.Run(tc.name+"/"+taker.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { // a millisecond is soon over
					locker := newLocker(t, immediateStore())
					if err := taker.call(t, locker, tc.args.ctx, tc.args.key, tc.args.ttl); err != nil {
						t.Errorf("%s = %v; want nil", taker.name, err)
					}
				})
			})
		}
	}
}

// spec 1.9, 4.2, 4.3, 5.5
func TestValidationOfHoldOptions(t *testing.T) {
	t.Parallel()
	const ttl, most = 10 * time.Second, locco.MaxDuration
	auto := locco.AutoExtend(time.Minute)
	type opts = []locco.HoldOption
	for _, tc := range []struct {
		name  string
		opts  opts
		early bool // found without a TTL, so by New and With too
		field string
		value any
		rule  string
	}{
		{"MaxHoldMissing", opts{locco.AutoExtend(0)}, true, "AutoExtend", time.Duration(0), "at least 1ms"},
		{"MaxHoldNegative", opts{locco.AutoExtend(-1)}, true, "AutoExtend", time.Duration(-1), "at least 1ms"},
		{"MaxHoldTooLong", opts{locco.AutoExtend(most + 1)}, true, "AutoExtend", most + 1, "at most"},
		{"MaxHoldBelowTTL", opts{locco.AutoExtend(ttl - 1)}, false, "AutoExtend", ttl - 1, "at least the ttl"},
		{"EveryWithoutAutoExtend", opts{locco.ExtendEvery(time.Second)}, true, "ExtendEvery", time.Second, "needs AutoExtend"},
		{"EveryAfterNoAutoExtend", opts{auto, locco.NoAutoExtend(), locco.ExtendEvery(time.Second)}, true, "ExtendEvery", time.Second, "needs AutoExtend"},
		{"EveryZero", opts{auto, locco.ExtendEvery(0)}, true, "ExtendEvery", time.Duration(0), "at least 1ms"},
		{"EveryNegative", opts{locco.ExtendEvery(-time.Second), auto}, true, "ExtendEvery", -time.Second, "at least 1ms"},
		{"EveryTooShort", opts{auto, locco.ExtendEvery(time.Millisecond - 1)}, true, "ExtendEvery", time.Millisecond - 1, "at least 1ms"},
		{"EveryTooLong", opts{auto, locco.ExtendEvery(most + 1)}, true, "ExtendEvery", most + 1, "at most"},
		{"EveryOverHalfTheTTL", opts{auto, locco.ExtendEvery(ttl/2 + 1)}, false, "ExtendEvery", ttl/2 + 1, "at most half the ttl"},
		{"AtLeastNegative", opts{locco.HoldAtLeast(-1)}, true, "HoldAtLeast", time.Duration(-1), "at least 0s"},
		{"AtLeastTooLong", opts{locco.HoldAtLeast(most + 1)}, true, "HoldAtLeast", most + 1, "at most"},
		{"AtLeastOverTTL", opts{locco.HoldAtLeast(ttl + 1)}, false, "HoldAtLeast", ttl + 1, "at most the ttl"},
		{"AtLeastOverMaxHold", opts{auto, locco.HoldAtLeast(time.Minute + 1)}, false, "HoldAtLeast", time.Minute + 1, "at most the hold limit"},
		{"AtLeastOverTTLAgain", opts{auto, locco.HoldAtLeast(time.Minute), locco.NoAutoExtend()}, false, "HoldAtLeast", time.Minute, "at most the ttl"},
		{"DelayNegative", opts{locco.LockDelay(-1)}, true, "LockDelay", time.Duration(-1), "at least 0s"},
		{"DelayTooLong", opts{locco.LockDelay(math.MaxInt64)}, true, "LockDelay", time.Duration(math.MaxInt64), "at most"},
		{"FirstOfTwo", opts{locco.LockDelay(-1), locco.HoldAtLeast(-1)}, true, "LockDelay", time.Duration(-1), "at least 0s"},
		{"NilAround", opts{nil, locco.LockDelay(-1), nil}, true, "LockDelay", time.Duration(-1), "at least 0s"},
	} {
		for _, taker := range takers {
			t.Run(tc.name+"/"+taker.name, func(t *testing.T) {
				t.Parallel()
				s := immediateStore()
				err := taker.call(t, newLocker(t, s), context.Background(), "k", ttl, tc.opts...)
				wantInvalid(t, taker.name, err, tc.field, tc.value, tc.rule)
				wantUntouched(t, s, taker.name, 0)
			})
			t.Run(tc.name+"/Defaults/"+taker.name, func(t *testing.T) {
				t.Parallel()
				s := immediateStore()
				locker, err := locco.New(s, locco.WithDefaults(callOptions(tc.opts)...))
				if tc.early {
					wantInvalid(t, "New", err, tc.field, tc.value, tc.rule)
					_, err = newLocker(t, s).With(callOptions(tc.opts)...)
					wantInvalid(t, "With", err, tc.field, tc.value, tc.rule)
					wantUntouched(t, s, "New", 0)
					return
				}
				if err != nil {
					t.Fatalf("New = %v; want nil: it depends on the TTL", err)
				}
				for range 2 { // the refusal of one call is nothing to the next
					err = taker.call(t, locker, context.Background(), "k", ttl)
					wantInvalid(t, taker.name, err, tc.field, tc.value, tc.rule)
					wantUntouched(t, s, taker.name, 0)
				}
				// With the TTL that goes with the defaults it is a locker like any other.
				var fits time.Duration
				switch {
				case tc.field == "AutoExtend":
					fits = ttl - 1
				case tc.rule == "at most half the ttl":
					fits = ttl + 2
				case tc.rule == "at most the ttl":
					fits = time.Minute
				default:
					return
				}
				if err := taker.call(t, locker, context.Background(), "k", fits); err != nil {
					t.Errorf("%s with a ttl of %v = %v; want nil", taker.name, fits, err)
				}
			})
		}
	}
	for _, tc := range []struct {
		name string
		opts opts
	}{
		{"None", nil},
		{"NilOnly", opts{nil, nil}},
		{"MaxHoldIsTTL", opts{locco.AutoExtend(ttl)}},
		{"MaxHoldLongest", opts{locco.AutoExtend(most)}},
		{"EveryHalfTheTTL", opts{auto, locco.ExtendEvery(ttl / 2)}},
		{"EveryShortest", opts{locco.ExtendEvery(time.Millisecond), auto}},
		{"EveryTakenBack", opts{auto, locco.ExtendEvery(time.Second), locco.NoAutoExtend()}},
		{"NoAutoExtendAlone", opts{locco.NoAutoExtend()}},
		{"AtLeastNone", opts{locco.HoldAtLeast(0)}},
		{"AtLeastTTL", opts{locco.HoldAtLeast(ttl)}},
		{"AtLeastMaxHold", opts{locco.HoldAtLeast(time.Minute), auto}},
		{"DelayNone", opts{locco.LockDelay(0)}},
		{"DelayLongest", opts{locco.LockDelay(most)}},
		{"LastWins", opts{locco.AutoExtend(ttl / 2), locco.AutoExtend(time.Minute)}},
		{"LastWinsTwice", opts{auto, locco.ExtendEvery(ttl), locco.ExtendEvery(time.Second), locco.HoldAtLeast(time.Hour), locco.HoldAtLeast(time.Second)}},
	} {
		for _, taker := range takers {
			t.Run(tc.name+"/"+taker.name, func(t *testing.T) {
				t.Parallel()
				if err := taker.call(t, newLocker(t, immediateStore()), context.Background(), "k", ttl, tc.opts...); err != nil {
					t.Errorf("%s = %v; want nil", taker.name, err)
				}
				locker := newLocker(t, immediateStore(), locco.WithDefaults(callOptions(tc.opts)...))
				if err := taker.call(t, locker, context.Background(), "k", ttl); err != nil {
					t.Errorf("%s with defaults = %v; want nil", taker.name, err)
				}
			})
		}
	}
}

// spec 1.9, 3.1, 3.3
func TestValidationOfRetryOptions(t *testing.T) {
	t.Parallel()
	const most = locco.MaxDuration
	ctx := context.Background()
	for _, tc := range []struct {
		name  string
		opt   locco.CallOption
		field string
		value any
		rule  string
	}{
		{"RetriesNegative", locco.Retries(-1), "Retries", -1, "at least 0"},
		{"RetriesMostNegative", locco.Retries(math.MinInt), "Retries", math.MinInt, "at least 0"},
		{"DelayNegative", locco.RetryDelay(-1), "RetryDelay", time.Duration(-1), "at least 0s"},
		{"DelayTooLong", locco.RetryDelay(most + 1), "RetryDelay", most + 1, "at most"},
		{"BackoffNil", locco.RetryBackoff(nil), "RetryBackoff", nil, "must not be nil"},
		{"JitterOfNil", locco.RetryBackoff(locco.Jitter(nil, 0.5)), "RetryBackoff", nil, "must not be nil"},
		{"TimeoutNegative", locco.RetryTimeout(-1), "RetryTimeout", time.Duration(-1), "at least 0s"},
		{"TimeoutTooLong", locco.RetryTimeout(math.MaxInt64), "RetryTimeout", time.Duration(math.MaxInt64), "at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := immediateStore()
			locker := newLocker(t, s)
			fail := func() { t.Error("the callback ran") }
			_, err := lockErr(locker.Acquire(ctx, "k", time.Second, tc.opt))
			wantInvalid(t, "Acquire", err, tc.field, tc.value, tc.rule)
			err = locker.WithLock(ctx, "k", time.Second, func(context.Context, *locco.Lock) error { fail(); return nil }, tc.opt)
			wantInvalid(t, "WithLock", err, tc.field, tc.value, tc.rule)
			_, err = locco.Do(ctx, locker, "k", time.Second, func(context.Context, *locco.Lock) (int, error) { fail(); return 0, nil }, tc.opt)
			wantInvalid(t, "Do", err, tc.field, tc.value, tc.rule)
			set, err := locker.AcquireMany(ctx, []string{"k"}, time.Second, nil, tc.opt)
			wantInvalid(t, "AcquireMany", err, tc.field, tc.value, tc.rule)
			if set != nil {
				t.Error("AcquireMany returned a set with its error")
			}
			err = locker.WithLocks(ctx, []string{"k"}, time.Second, func(context.Context, *locco.LockSet) error { fail(); return nil }, tc.opt)
			wantInvalid(t, "WithLocks", err, tc.field, tc.value, tc.rule)
			_, err = locco.New(s, locco.WithDefaults(tc.opt))
			wantInvalid(t, "New", err, tc.field, tc.value, tc.rule)
			view, err := locker.With(tc.opt)
			wantInvalid(t, "With", err, tc.field, tc.value, tc.rule)
			if view != nil {
				t.Error("With returned a locker with its error")
			}
			wantUntouched(t, s, "all of it", 0)
		})
	}
}

func lockErr(lock *locco.Lock, err error) (*locco.Lock, error) {
	if lock != nil && err != nil {
		return lock, errors.New("a lock with an error")
	}
	return lock, err
}

// spec 1.9, 2.3, 2.5
func TestValidationOfCallbacksAndSets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := immediateStore()
	locker := newLocker(t, s)
	wantInvalid(t, "WithLock", locker.WithLock(ctx, "k", time.Second, nil), "fn", nil, "must not be nil")
	ran, err := locker.TryWithLock(ctx, "k", time.Second, nil)
	wantInvalid(t, "TryWithLock", err, "fn", nil, "must not be nil")
	if ran {
		t.Error("TryWithLock ran = true; want false")
	}
	_, err = locco.Do[int](ctx, locker, "k", time.Second, nil)
	wantInvalid(t, "Do", err, "fn", nil, "must not be nil")
	wantInvalid(t, "WithLocks", locker.WithLocks(ctx, []string{"k"}, time.Second, nil), "fn", nil, "must not be nil")

	never := func(context.Context, *locco.LockSet) error { t.Error("the callback ran"); return nil }
	for _, keys := range [][]string{nil, {}} {
		_, err = locker.AcquireMany(ctx, keys, time.Second)
		wantInvalid(t, "AcquireMany", err, "keys", keys, "must not be empty")
		wantInvalid(t, "WithLocks", locker.WithLocks(ctx, keys, time.Second, never), "keys", keys, "must not be empty")
	}
	_, err = locker.AcquireMany(ctx, []string{"a", "", "b"}, time.Second)
	wantInvalid(t, "AcquireMany", err, "key", "", "must not be empty")
	wantUntouched(t, s, "all of it", 0)

	// Duplicates are no mistake.
	set, err := locker.AcquireMany(ctx, []string{"b", "a", "b", "a", "b"}, time.Second)
	if err != nil || len(set.Locks()) != 2 || set.Get("a") == nil || set.Get("b") == nil {
		t.Errorf("AcquireMany with duplicates = %v, %v; want a lock each", set.Locks(), err)
	}
	set.Release(ctx)
}

// badBackend is a store that says that it was built wrong.
type badBackend struct {
	*store
	err error
}

func (b badBackend) Validate() error { return b.err }

// falseFencer is a store that has a Fencer's method and no fencing.
type falseFencer struct{ *store }

func (falseFencer) Fences() bool { return false }

// spec 1.9, 6.3
func TestValidationOfNew(t *testing.T) {
	t.Parallel()
	ownErr := &locco.ValidationError{Field: "client", Rule: "must not be nil"}
	plainErr := errors.New("driver: no client")
	longPrefix := strings.Repeat("p", 1025)
	clock := func() time.Duration { return 0 }
	token := func() string { return "t" }
	for _, tc := range []struct {
		name    string
		backend locco.Backend
		opts    []locco.Option
		field   string
		value   any
		rule    string
		cause   error
	}{
		{"NilBackend", nil, nil, "backend", nil, "must not be nil", nil},
		{"BackendSaysWhy", badBackend{newStore(), ownErr}, nil, "client", nil, "must not be nil", ownErr},
		{"BackendSaysNo", badBackend{newStore(), plainErr}, nil, "backend", nil, "set up right", plainErr},
		{"PrefixWithNUL", newStore(), []locco.Option{locco.WithPrefix("a\x00")}, "WithPrefix", "a\x00", "NUL", nil},
		{"PrefixNotUTF8", newStore(), []locco.Option{locco.WithPrefix("\xff")}, "WithPrefix", "\xff", "UTF-8", nil},
		{"PrefixHalfARune", newStore(), []locco.Option{locco.WithPrefix("é"[:1])}, "WithPrefix", "é"[:1], "UTF-8", nil},
		{"PrefixTooLong", newStore(), []locco.Option{locco.WithPrefix(longPrefix)}, "WithPrefix", longPrefix, "at most 1024 bytes", nil},
		{"CallTimeoutZero", newStore(), []locco.Option{locco.WithCallTimeout(0)}, "WithCallTimeout", time.Duration(0), "at least 1ms", nil},
		{"CallTimeoutNegative", newStore(), []locco.Option{locco.WithCallTimeout(-1)}, "WithCallTimeout", time.Duration(-1), "at least 1ms", nil},
		{"CallTimeoutTooLong", newStore(), []locco.Option{locco.WithCallTimeout(math.MaxInt64)}, "WithCallTimeout", time.Duration(math.MaxInt64), "at most", nil},
		{"HandoverLimitNegative", newStore(), []locco.Option{locco.WithHandoverLimit(-1)}, "WithHandoverLimit", -1, "at least 0", nil},
		{"NilTokenFunc", newStore(), []locco.Option{locco.WithTokenFunc(nil)}, "WithTokenFunc", nil, "must not be nil", nil},
		{"NilClock", newStore(), []locco.Option{locco.WithClock(nil)}, "WithClock", nil, "must not be nil", nil},
		{"LastTokenFuncIsNil", newStore(), []locco.Option{locco.WithTokenFunc(token), locco.WithTokenFunc(nil)}, "WithTokenFunc", nil, "must not be nil", nil},
		{"LastClockIsNil", newStore(), []locco.Option{locco.WithClock(clock), locco.WithClock(nil)}, "WithClock", nil, "must not be nil", nil},
		{"FencingWithoutFencer", plainStore{newStore()}, []locco.Option{locco.WithFencing()}, "WithFencing", true, "no fencing", nil},
		{"FencingWithoutFences", falseFencer{newStore()}, []locco.Option{locco.WithFencing()}, "WithFencing", true, "no fencing", nil},
		{"NilAround", newStore(), []locco.Option{nil, locco.WithHandoverLimit(-2), nil}, "WithHandoverLimit", -2, "at least 0", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			locker, err := locco.New(tc.backend, tc.opts...)
			wantInvalid(t, "New", err, tc.field, tc.value, tc.rule)
			if locker != nil {
				t.Error("New returned a locker with its error")
			}
			if tc.cause != nil && !errors.Is(err, tc.cause) {
				t.Errorf("New = %v; want it to match the backend's error", err)
			}
		})
	}
	for _, tc := range []struct {
		name    string
		backend locco.Backend
		opts    []locco.Option
	}{
		{"NoOptions", newStore(), nil},
		{"NilOptions", newStore(), []locco.Option{nil, nil}},
		{"BackendIsGood", badBackend{newStore(), nil}, nil},
		{"PlainBackend", plainStore{newStore()}, nil},
		{"NoPrefix", newStore(), []locco.Option{locco.WithPrefix("")}},
		{"LongestPrefix", newStore(), []locco.Option{locco.WithPrefix(longPrefix[1:])}},
		{"LastPrefixWins", newStore(), []locco.Option{locco.WithPrefix("\xff"), locco.WithPrefix("p")}},
		{"LastTokenFuncWins", newStore(), []locco.Option{locco.WithTokenFunc(nil), locco.WithTokenFunc(token)}},
		{"LastClockWins", newStore(), []locco.Option{locco.WithClock(nil), locco.WithClock(clock)}},
		{"ShortestCallTimeout", newStore(), []locco.Option{locco.WithCallTimeout(time.Millisecond)}},
		{"LongestCallTimeout", newStore(), []locco.Option{locco.WithCallTimeout(locco.MaxDuration)}},
		{"LastCallTimeoutWins", newStore(), []locco.Option{locco.WithCallTimeout(-1), locco.WithCallTimeout(time.Second)}},
		{"NoHandover", newStore(), []locco.Option{locco.WithHandoverLimit(0)}},
		{"NilEvents", newStore(), []locco.Option{locco.WithEvents(nil)}},
		{"NilDefaults", newStore(), []locco.Option{locco.WithDefaults(nil, nil), locco.WithDefaults()}},
		{"Fencing", newStore(), []locco.Option{locco.WithFencing(), locco.WithFencing()}},
		{"NoFencingAskedFor", falseFencer{newStore()}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			locker, err := locco.New(tc.backend, tc.opts...)
			if err != nil {
				t.Fatalf("New = %v; want nil", err)
			}
			if err := locker.Close(context.Background()); err != nil {
				t.Errorf("Close = %v; want nil", err)
			}
		})
	}
}

// spec 1.9: the prefix is part of the key, and so of its limits.
func TestValidationOfPrefixedKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, prefix, key string
		rule              string // empty: fine
	}{
		{"Longest", strings.Repeat("p", 1000), strings.Repeat("k", 24), ""},
		{"TooLong", strings.Repeat("p", 1000), strings.Repeat("k", 25), "at most 1024 bytes with the prefix"},
		{"PrefixAlone", "the one lock", "", ""},
		{"NUL", "p", "\x00", "NUL"},
		{"NotUTF8", "p", "\xff", "UTF-8"},
	} {
		for _, taker := range takers {
			if taker.name == "Attach" {
				continue // its key has the prefix already
			}
			t.Run(tc.name+"/"+taker.name, func(t *testing.T) {
				t.Parallel()
				s := immediateStore()
				var keys []string
				s.onGrant = func(key, _ string) { keys = append(keys, key) }
				locker := newLocker(t, s, locco.WithPrefix(tc.prefix))
				key := tc.key
				err := taker.call(t, locker, context.Background(), key, time.Second)
				full := tc.prefix + tc.key
				if tc.rule != "" {
					wantInvalid(t, taker.name, err, "key", full, tc.rule)
					wantUntouched(t, s, taker.name, 0)
					return
				}
				many := strings.Contains(taker.name, "Many") || strings.Contains(taker.name, "Locks")
				if many && tc.name == "Longest" { // its other key is longer
					return
				}
				if err != nil || !many && (len(keys) != 1 || keys[0] != full) {
					t.Errorf("%s = %v, stored %q; want %q", taker.name, err, keys, full)
				}
			})
		}
	}
}

// spec 1.2, 1.9
func TestValidationOfTokens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, token string
		ok          bool
	}{
		{"Empty", "", false},
		{"TooLong", strings.Repeat("t", 257), false},
		{"NotUTF8", "t\xff", false},
		{"NUL", "t\x00", false},
		{"Longest", strings.Repeat("t", 256), true},
		{"Short", "t", true},
	} {
		for _, taker := range takers {
			t.Run(tc.name+"/"+taker.name, func(t *testing.T) {
				t.Parallel()
				s := immediateStore()
				drawn := 0
				locker := newLocker(t, s, locco.WithTokenFunc(func() string {
					drawn++
					if drawn == 1 && (taker.name == "AcquireMany" || taker.name == "WithLocks") {
						return "a good token" // the second one counts as much
					}
					return tc.token
				}))
				err := taker.call(t, locker, context.Background(), "k", time.Second)
				if taker.name == "Attach" {
					if err != nil || drawn != 0 {
						t.Errorf("Attach = %v, drew %d tokens; want nil, none", err, drawn)
					}
					return
				}
				if tc.ok {
					if err != nil {
						t.Errorf("%s = %v; want nil", taker.name, err)
					}
					return
				}
				wantInvalid(t, taker.name, err, "token", tc.token, "1 to 256 bytes")
				wantUntouched(t, s, taker.name, 0)
			})
		}
	}
}

// spec 1.9, 5.7, 6.1
func TestValidationOfHandles(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		handle locco.Handle
		field  string
		value  any
		rule   string
	}{
		{"Zero", locco.Handle{}, "key", "", "must not be empty"},
		{"NoToken", locco.Handle{Key: "k"}, "token", "", "1 to 256 bytes"},
		{"BadToken", locco.Handle{Key: "k", Token: "a\x00"}, "token", "a\x00", "NUL"},
		{"NegativeFence", locco.Handle{Key: "k", Token: "t", Fence: -1}, "fence", int64(-1), "2^53-1"},
		{"HugeFence", locco.Handle{Key: "k", Token: "t", Fence: 1 << 53}, "fence", int64(1 << 53), "2^53-1"},
		{"NegativeCeiling", locco.Handle{Key: "k", Token: "t", Ceiling: -1}, "ceiling", time.Duration(-1), "at least 1ms"},
		{"TinyCeiling", locco.Handle{Key: "k", Token: "t", Ceiling: 1}, "ceiling", time.Duration(1), "at least 1ms"},
		{"HugeCeiling", locco.Handle{Key: "k", Token: "t", Ceiling: math.MaxInt64}, "ceiling", time.Duration(math.MaxInt64), "at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := immediateStore()
			lock, err := newLocker(t, s).Attach(ctx, tc.handle, time.Second)
			wantInvalid(t, "Attach", err, tc.field, tc.value, tc.rule)
			wantUntouched(t, s, "Attach", 0)
			if lock != nil {
				t.Error("Attach returned a lock with its error")
			}
		})
	}
}

// spec 1.3, 1.9, 5.4: what a lock in hand is told wrong is not sent, and does not
// harm it.
func TestValidationOfLockMethods(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := immediateStore()
	locker := newLocker(t, s)
	lock, err := locker.Acquire(ctx, "k", time.Minute)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	set, err := locker.AcquireMany(ctx, []string{"a", "b"}, time.Minute)
	if err != nil {
		t.Fatalf("AcquireMany: %v", err)
	}
	before := s.callCount()
	var none context.Context
	var nilLock *locco.Lock
	var nilSet *locco.LockSet
	for _, tc := range []struct {
		name   string
		extend func(context.Context, time.Duration) error
		check  func(context.Context) error
		bind   func(context.Context) context.Context
		free   func(context.Context) error
	}{
		{"Lock", lock.Extend, lock.Check, lock.Bind, lock.Release},
		{"Set", set.Extend, nil, set.Bind, set.Release},
		{"NilLock", nilLock.Extend, nilLock.Check, nilLock.Bind, nilLock.Release},
		{"NilSet", nilSet.Extend, nil, nilSet.Bind, nilSet.Release},
	} {
		wantInvalid(t, tc.name+".Extend", tc.extend(none, time.Second), "ctx", nil, "must not be nil")
		for _, ttl := range []time.Duration{0, -time.Second, time.Millisecond - 1, math.MinInt64} {
			wantInvalid(t, tc.name+".Extend", tc.extend(ctx, ttl), "ttl", ttl, "at least 1ms")
		}
		wantInvalid(t, tc.name+".Extend", tc.extend(ctx, math.MaxInt64), "ttl", time.Duration(math.MaxInt64), "at most")
		if tc.check != nil {
			wantInvalid(t, tc.name+".Check", tc.check(none), "ctx", nil, "must not be nil")
		}
		wantInvalid(t, tc.name+".Release", tc.free(none), "ctx", nil, "must not be nil")
		bound := tc.bind(none)
		if bound == nil || bound.Err() == nil {
			t.Errorf("%s.Bind(nil) = %v; want an ended context", tc.name, bound)
		} else {
			wantInvalid(t, "cause of "+tc.name+".Bind", context.Cause(bound), "ctx", nil, "must not be nil")
		}
	}
	wantInvalid(t, "Close", locker.Close(none), "ctx", nil, "must not be nil")
	wantUntouched(t, s, "all of it", before)
	if lock.State() != locco.StateHeld || set.Err() != nil || lock.TTL() != time.Minute {
		t.Errorf("state, error of the set, ttl = %v, %v, %v; want held, nil, 1m", lock.State(), set.Err(), lock.TTL())
	}
	if err := errors.Join(lock.Release(ctx), set.Release(ctx)); err != nil {
		t.Errorf("Release = %v; want nil", err)
	}
}

// spec 5.4
func TestValidationNilSet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var set *locco.LockSet
	if got := set.Locks(); got != nil {
		t.Errorf("Locks = %v; want nil", got)
	}
	if got := set.Get("k"); got != nil {
		t.Errorf("Get = %v; want nil", got)
	}
	if err := set.Err(); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Err = %v; want ErrReleased", err)
	}
	if err := set.Extend(ctx, time.Second); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Extend = %v; want ErrReleased", err)
	}
	if err := set.Release(ctx); err != nil {
		t.Errorf("Release = %v; want nil", err)
	}
	select {
	case <-set.Lost():
	default:
		t.Error("Lost is open; want it closed")
	}
	bound := set.Bind(ctx)
	if bound.Err() == nil || !errors.Is(context.Cause(bound), locco.ErrReleased) {
		t.Errorf("Bind ended with %v, cause %v; want ErrReleased", bound.Err(), context.Cause(bound))
	}
}

// A bad argument is told before anything else: also when the locker was closed or
// the context is over.
//
// spec 1.9, 2.6
func TestValidationComesFirst(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, taker := range takers {
		t.Run(taker.name, func(t *testing.T) {
			t.Parallel()
			s := immediateStore()
			locker := newLocker(t, s)
			wantInvalid(t, "ended context", taker.call(t, locker, over, "", time.Second), "key", "", "must not be empty")
			wantInvalid(t, "ended context", taker.call(t, locker, over, "k", 0), "ttl", time.Duration(0), "at least 1ms")
			if err := locker.Close(context.Background()); err != nil {
				t.Fatalf("Close: %v", err)
			}
			wantInvalid(t, "closed locker", taker.call(t, locker, context.Background(), "", time.Second), "key", "", "must not be empty")
			if err := taker.call(t, locker, context.Background(), "k", time.Second); !errors.Is(err, locco.ErrClosed) {
				t.Errorf("closed locker = %v; want ErrClosed", err)
			}
			wantUntouched(t, s, "all of it", 0)
		})
	}
}
