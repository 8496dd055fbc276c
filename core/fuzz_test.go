package locco_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	locco "github.com/locco-go/locco/core"
)

// The fuzz target of the lease, FuzzLease, is beside its model.

// FuzzKey takes any key and prefix: it is refused before anything is sent, or
// stored and freed as it is.
//
// spec 1.9
func FuzzKey(f *testing.F) {
	for _, key := range []string{
		"", "k", "order:42", "a\x00b", "\xff", "é", "é"[:1], "\xed\xa0\x80", "\U0010FFFF", "{tag}:k", "}", " ",
		strings.Repeat("k", 1024), strings.Repeat("k", 1025), strings.Repeat("é", 512), strings.Repeat("世", 342),
	} {
		f.Add("", key)
		f.Add("app:", key)
		f.Add(key, "k")
		f.Add("é"[:1], "é"[1:])
	}
	good := func(s string) bool { return len(s) <= 1024 && utf8.ValidString(s) && !strings.Contains(s, "\x00") }
	f.Fuzz(func(t *testing.T, prefix, key string) {
		s := immediateStore()
		locker, err := locco.New(s, locco.WithPrefix(prefix))
		if !good(prefix) {
			wantInvalid(t, "New", err, "WithPrefix", prefix, "must")
			return
		}
		if err != nil {
			t.Fatalf("New with prefix %q = %v; want nil", prefix, err)
		}
		full := prefix + key
		lock, err := locker.Acquire(t.Context(), key, time.Minute)
		if !good(full) || full == "" {
			wantInvalid(t, "Acquire", err, "key", full, "must")
			wantUntouched(t, s, "Acquire", 0)
			return
		}
		if err != nil || lock.Key() != full || s.holder(full) != lock.Token() {
			t.Fatalf("Acquire(%q) = %q, %v; want %q, stored", key, lock.Key(), err, full)
		}
		if err := lock.Release(t.Context()); err != nil || s.holder(full) != "" {
			t.Errorf("Release = %v, stored by %q; want the key free", err, s.holder(full))
		}
		set, err := locker.AcquireMany(t.Context(), []string{key, key}, time.Minute)
		if err != nil || len(set.Locks()) != 1 || set.Get(key) != set.Locks()[0] {
			t.Fatalf("AcquireMany(%q twice) = %v; want one lock", key, err)
		}
		set.Release(t.Context())
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
	})
}

// FuzzRetryPolicy takes any delay function and any layers of retry options: the
// waits are in their bounds, and the merged policy is what the rules say.
//
// spec 3.1, 3.2, 3.3
func FuzzRetryPolicy(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 0.5, 7, []byte{})
	f.Add(int64(1), int64(math.MaxInt64), 1.0, math.MaxInt, []byte{0, 3, 9, 4, 0})
	f.Add(int64(0), int64(time.Second), math.NaN(), math.MaxInt, []byte{3, 5, 0, 2, 4, 0, 7})
	f.Add(int64(-1), int64(-1), math.Inf(1), math.MinInt, []byte{1, 9, 3, 3, 3, 0, 5, 4})
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), -0.1, 2, []byte{9, 0, 9, 1, 9, 2, 0, 3, 4, 4})
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), 1.0, 64, []byte{4, 1, 9, 3, 0, 9, 5})
	f.Add(int64(2), int64(7), 0.9, 3, []byte{3, 5, 0, 4, 9, 0, 2, 1})
	f.Fuzz(func(t *testing.T, first, limit int64, share float64, attempt int, layers []byte) {
		fuzzBackoff(t, time.Duration(first), time.Duration(limit), share, attempt)
		fuzzLayers(t, layers)
	})
}

func fuzzBackoff(t *testing.T, first, limit time.Duration, share float64, attempt int) {
	t.Helper()
	backoff := locco.ExponentialBackoff(first, limit)
	wait := backoff(attempt, 0, 0)
	switch {
	case wait > limit:
		t.Errorf("backoff(%d) = %v; want at most %v", attempt, wait, limit)
	case wait < min(first, limit):
		t.Errorf("backoff(%d) = %v; want at least %v", attempt, wait, min(first, limit))
	case first <= 0 && wait > 0:
		t.Errorf("backoff(%d) = %v; want none", attempt, wait)
	case attempt > 0 && attempt < math.MaxInt:
		next := backoff(attempt+1, 0, 0)
		if first > 0 && limit > 0 && next != limit && (next < wait || next-wait != wait) {
			t.Errorf("backoff(%d) = %v after %v; want twice as long, or %v", attempt+1, next, wait, limit)
		}
	}
	got := locco.Jitter(locco.ConstantBackoff(wait), share)(attempt, 0, 0)
	most := min(max(share, 0), 1)
	if math.IsNaN(most) {
		most = 0
	}
	least := wait - time.Duration(float64(wait)*most)
	if got > max(wait, least) || got < min(wait, least) {
		t.Errorf("jitter %v of %v = %v; want %v to %v", share, wait, got, least, wait)
	}
}

// fuzzLayers merges a locker's layer and a call's, parted by a 9, and works out
// again what should come of it.
func fuzzLayers(t *testing.T, layers []byte) {
	t.Helper()
	want := locco.RetryPolicy{Retries: 10, Delay: 200 * time.Millisecond}
	var opts [2][]locco.CallOption
	layer := 0
	var counted, timed bool
	end := func() {
		if timed && !counted && want.Timeout != 0 {
			want.Retries = locco.Unlimited
		}
		counted, timed = false, false
	}
	for i := 0; i+1 < len(layers); i += 2 {
		n := int(layers[i+1])
		d := time.Duration(n) * time.Millisecond
		var o locco.CallOption
		switch layers[i] % 10 {
		case 0:
			o, counted, want.Retries = locco.Retries(n), true, n
		case 1:
			o, counted, want.Retries = locco.RetryForever(), true, locco.Unlimited
		case 2:
			o, want.Delay, want.Backoff = locco.RetryDelay(d), d, nil
		case 3:
			o, timed, want.Timeout = locco.RetryTimeout(d), true, d
		case 4:
			want.Backoff = locco.ConstantBackoff(d)
			o = locco.RetryBackoff(want.Backoff)
		case 9:
			if layer == 0 {
				end()
				layer = 1
			}
		}
		opts[layer] = append(opts[layer], o)
	}
	end()
	locker := newLocker(t, immediateStore(), locco.WithDefaults(opts[0]...))
	wantPolicy(t, "Retry", policyOf(t, locker, opts[1]...), want)
}

// FuzzOptions takes any TTL and any options: they are refused before anything is
// sent, by the rules worked out again here, or make a lock that keeps them.
//
// spec 1.3, 1.9, 1.10, 4.2, 4.3, 5.5
func FuzzOptions(f *testing.F) {
	const s, most = int64(time.Second), int64(locco.MaxDuration)
	f.Add(10*s, int64(0), int64(0), int64(0), int64(0), 3*s, 0, byte(0))
	f.Add(10*s, 60*s, 5*s, 60*s, 5*s, 3*s, 8, byte(0xff))
	f.Add(10*s, 60*s, 5*s+1, 0*s, 0*s, 3*s, 8, byte(0x03))
	f.Add(10*s, 10*s-1, 0*s, 0*s, 0*s, 3*s, 8, byte(0x01))
	f.Add(10*s, 0*s, 1*s, 0*s, 0*s, 3*s, 8, byte(0x02))
	f.Add(10*s, 0*s, 0*s, 10*s+1, 0*s, 3*s, 8, byte(0x04))
	f.Add(10*s, 60*s, 0*s, 60*s+1, -1*s, 3*s, 8, byte(0x0d))
	f.Add(int64(1e6), int64(1e6), int64(1e6), int64(1e6), int64(1), int64(1e6), 0, byte(0x1f))
	f.Add(most, most, most/2, most, most, most, math.MaxInt, byte(0x0f))
	f.Add(most+1, most+1, most+1, most+1, most+1, most+1, -1, byte(0x3f))
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(math.MinInt64), int64(-1), int64(math.MaxInt64), int64(0), math.MinInt, byte(0x0f))
	f.Fuzz(func(t *testing.T, ttl, maxHold, every, atLeast, delay, callTimeout int64, handovers int, flags byte) {
		o := fuzzedOptions{
			ttl: time.Duration(ttl), maxHold: time.Duration(maxHold), every: time.Duration(every),
			atLeast: time.Duration(atLeast), delay: time.Duration(delay),
			callTimeout: time.Duration(callTimeout), handovers: handovers, flags: flags,
		}
		synctest.Test(t, o.check)
	})
}

type fuzzedOptions struct {
	ttl, maxHold, every, atLeast, delay, callTimeout time.Duration

	handovers int
	flags     byte // which of them are set, and where
}

func (o *fuzzedOptions) has(bit int) bool { return o.flags&(1<<bit) != 0 }

// invalid is the field that is wrong; "" if none.
func (o *fuzzedOptions) invalid() (ofLocker, ofCall string) {
	out := func(d, least time.Duration) bool { return d < least || d > locco.MaxDuration }
	const ms = time.Millisecond
	switch {
	case out(o.callTimeout, ms):
		return "WithCallTimeout", ""
	case o.handovers < 0:
		return "WithHandoverLimit", ""
	case out(o.ttl, ms):
		ofCall = "ttl"
	case o.has(0) && out(o.maxHold, ms):
		ofCall = "AutoExtend"
	case o.has(1) && out(o.every, ms):
		ofCall = "ExtendEvery"
	case o.has(2) && out(o.atLeast, 0):
		ofCall = "HoldAtLeast"
	case o.has(3) && out(o.delay, 0):
		ofCall = "LockDelay"
	case o.has(1) && !o.has(0):
		ofCall = "ExtendEvery"
	case o.has(0) && o.maxHold < o.ttl:
		ofCall = "AutoExtend"
	case o.has(1) && o.every > o.ttl/2:
		ofCall = "ExtendEvery"
	case o.has(2) && (!o.has(0) && o.atLeast > o.ttl || o.has(0) && o.atLeast > o.maxHold):
		ofCall = "HoldAtLeast"
	}
	return "", ofCall
}

func (o *fuzzedOptions) check(t *testing.T) {
	ctx := context.Background()
	log := &optionLog{store: immediateStore()}
	locker, err := locco.New(log, locco.WithCallTimeout(o.callTimeout), locco.WithHandoverLimit(o.handovers))
	ofLocker, field := o.invalid()
	var invalid *locco.ValidationError
	if ofLocker != "" {
		if !errors.As(err, &invalid) || invalid.Field != ofLocker {
			t.Errorf("New = %v; want %s invalid", err, ofLocker)
		}
		return
	}
	if err != nil {
		t.Fatalf("New = %v; want nil", err)
	}
	defer locker.Close(ctx)
	var opts []locco.HoldOption
	for bit, opt := range []locco.HoldOption{
		locco.AutoExtend(o.maxHold), locco.ExtendEvery(o.every), locco.HoldAtLeast(o.atLeast), locco.LockDelay(o.delay),
	} {
		if o.has(bit) {
			opts = append(opts, opt)
		}
	}
	view, viewErr := locker.With(callOptions(opts)...)
	lock, err := locker.TryAcquire(ctx, "k", o.ttl, opts...)
	if o.has(4) && viewErr == nil { // as defaults they are the same
		lock.Release(ctx)
		log.free("k")
		lock, err = view.TryAcquire(ctx, "k", o.ttl)
	}
	if field != "" {
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("TryAcquire = %v; want %s invalid", err, field)
		}
		wantUntouched(t, log.store, "TryAcquire", 0)
		return
	}
	if err != nil || viewErr != nil {
		t.Fatalf("TryAcquire, With = %v, %v; want nil", err, viewErr)
	}
	delay := time.Duration(0)
	if o.has(3) {
		delay = o.delay
	}
	asked := log.last(t, "Acquire")
	if stored := asked.lease.TTL; stored%time.Millisecond != 0 || stored < o.ttl+delay || stored >= o.ttl+delay+time.Millisecond {
		t.Errorf("stored for %v; want %v in whole milliseconds, not less", stored, o.ttl+delay)
	}
	if asked.left != min(o.callTimeout, o.ttl) {
		t.Errorf("the call had %v; want %v", asked.left, min(o.callTimeout, o.ttl))
	}
	believed := o.ttl - o.ttl/100
	if o.has(0) {
		believed = min(believed, o.maxHold)
	}
	if got := lock.Remaining(); got != believed {
		t.Errorf("Remaining = %v; want %v", got, believed)
	}
	if deadline := lock.HoldDeadline(); deadline.IsZero() == o.has(0) || o.has(0) && time.Until(deadline) != o.maxHold {
		t.Errorf("HoldDeadline = %v; want %v ahead", deadline, o.maxHold)
	}
	if err := lock.Release(ctx); err != nil {
		t.Errorf("Release = %v; want nil", err)
	}
	if kept := log.holder("k") != ""; kept != (o.has(2) && o.atLeast > 0) {
		t.Errorf("kept after Release = %v; want it by HoldAtLeast only", kept)
	}
}
