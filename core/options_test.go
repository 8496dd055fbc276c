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
)

// optionLog is a store that remembers what it was asked for.
type optionLog struct {
	*store

	mu    sync.Mutex // guards the rest
	asked []optionCall
}

type optionCall struct {
	op    string
	lease locco.Lease
	left  time.Duration // until the deadline of the call's context
}

func (o *optionLog) note(ctx context.Context, op string, l locco.Lease) {
	left := time.Duration(-1)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, optionCall{op, l, left})
}

// last returns the latest call of op.
func (o *optionLog) last(t *testing.T, op string) optionCall {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, call := range slices.Backward(o.asked) {
		if call.op == op {
			return call
		}
	}
	t.Fatalf("no call of %s", op)
	return optionCall{}
}

func (o *optionLog) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	o.note(ctx, "Acquire", l)
	return o.store.Acquire(ctx, l)
}

func (o *optionLog) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	o.note(ctx, "Extend", l)
	return o.store.Extend(ctx, l)
}

func (o *optionLog) Release(ctx context.Context, key, token string) (bool, error) {
	o.note(ctx, "Release", locco.Lease{Key: key, Token: token})
	return o.store.Release(ctx, key, token)
}

func (o *optionLog) Holds(ctx context.Context, key, token string) (bool, error) {
	o.note(ctx, "Holds", locco.Lease{Key: key, Token: token})
	return o.store.Holds(ctx, key, token)
}

func (o *optionLog) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	o.note(ctx, "AcquireMany", ls[0])
	return o.store.AcquireMany(ctx, ls)
}

// What goes to the backend is whole milliseconds, never fewer than were asked
// for, and the lock delay on top.
//
// spec 1.3, 1.10
func TestOptionsStoredTTL(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name       string
		ttl, delay time.Duration
		want       time.Duration
	}{
		{"Shortest", ms, 0, ms},
		{"Whole", 1500 * ms, 0, 1500 * ms},
		{"RoundedUp", ms + 1, 0, 2 * ms},
		{"AlmostWhole", 2*ms - 1, 0, 2 * ms},
		{"Longest", locco.MaxDuration, 0, locco.MaxDuration},
		{"Delay", time.Second, 5 * time.Second, 6 * time.Second},
		{"RoundedTogether", 1500 * time.Microsecond, 500 * time.Microsecond, 2 * ms},
		{"RoundedTogetherUp", 1500 * time.Microsecond, 501 * time.Microsecond, 3 * ms},
		{"LongestTwice", locco.MaxDuration, locco.MaxDuration, 2 * locco.MaxDuration},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				o := &optionLog{store: newStore()}
				locker := newLocker(t, o, locco.WithDefaults(locco.LockDelay(tc.delay)))
				lock, err := locker.Acquire(ctx, "k", tc.ttl)
				if err != nil {
					t.Fatalf("Acquire: %v", err)
				}
				if got := o.last(t, "Acquire").lease.TTL; got != tc.want {
					t.Errorf("Acquire stores %v; want %v", got, tc.want)
				}
				if err := lock.Extend(ctx, tc.ttl); err != nil {
					t.Fatalf("Extend: %v", err)
				}
				if got := o.last(t, "Extend").lease.TTL; got != tc.want {
					t.Errorf("Extend stores %v; want %v", got, tc.want)
				}
				// The holder does not believe in the delay, nor in what was rounded up.
				if got, want := lock.Remaining(), tc.ttl-tc.ttl/100; got != want || lock.TTL() != tc.ttl {
					t.Errorf("Remaining, TTL = %v, %v; want %v, %v", got, lock.TTL(), want, tc.ttl)
				}
				handle, err := lock.Detach()
				if err != nil {
					t.Fatalf("Detach: %v", err)
				}
				attached, err := locker.Attach(ctx, handle, tc.ttl)
				if err != nil {
					t.Fatalf("Attach: %v", err)
				}
				if got := o.last(t, "Extend").lease.TTL; got != tc.want {
					t.Errorf("Attach stores %v; want %v", got, tc.want)
				}
				attached.Release(ctx)
				set, err := locker.AcquireMany(ctx, []string{"a", "b"}, tc.ttl)
				if err != nil {
					t.Fatalf("AcquireMany: %v", err)
				}
				if got := o.last(t, "AcquireMany").lease.TTL; got != tc.want {
					t.Errorf("AcquireMany stores %v; want %v", got, tc.want)
				}
				set.Release(ctx)
			})
		})
	}
}

// Every call has a deadline: the call timeout, or the lease it asks for if that
// is less; also when the caller's context has an earlier one, or none.
//
// spec 2.6, 8
func TestOptionsCallTimeout(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		name        string
		opts        []locco.Option
		ttl         time.Duration
		take, other time.Duration
	}{
		{"Default", nil, 10 * s, 3 * s, 3 * s},
		{"ShorterLease", nil, s, s, 3 * s},
		{"Longer", []locco.Option{locco.WithCallTimeout(8 * s)}, 10 * s, 8 * s, 8 * s},
		{"LongerThanTheLease", []locco.Option{locco.WithCallTimeout(20 * s)}, 10 * s, 10 * s, 20 * s},
		{"Shorter", []locco.Option{locco.WithCallTimeout(s / 2)}, 10 * s, s / 2, s / 2},
		{"LastWins", []locco.Option{locco.WithCallTimeout(s), locco.WithCallTimeout(2 * s)}, 10 * s, 2 * s, 2 * s},
		// The lock delay is nothing to wait for.
		{"LockDelay", []locco.Option{locco.WithDefaults(locco.LockDelay(time.Hour))}, s, s, 3 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, cancelable := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					ctx := context.Background()
					if cancelable {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, s/4)
						defer cancel()
					}
					o := &optionLog{store: newStore()}
					locker := newLocker(t, o, tc.opts...)
					lock, err := locker.Acquire(ctx, "k", tc.ttl)
					if err != nil {
						t.Fatalf("Acquire: %v", err)
					}
					err = errors.Join(lock.Extend(ctx, tc.ttl), lock.Check(ctx), lock.Release(ctx))
					if err != nil {
						t.Fatalf("Extend, Check, Release: %v", err)
					}
					for op, want := range map[string]time.Duration{
						"Acquire": tc.take, "Extend": tc.take, "Holds": tc.other, "Release": tc.other,
					} {
						if got := o.last(t, op).left; got != want {
							t.Errorf("%s has %v until its deadline; want %v", op, got, want)
						}
					}
				})
			}
		})
	}
}

// spec 1.9, 5.1
func TestOptionsPrefix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := newStore()
		locker := newLocker(t, s, locco.WithPrefix("old:"), locco.WithPrefix("app:"))
		view, err := locker.With(locco.Retries(0))
		if err != nil {
			t.Fatalf("With: %v", err)
		}
		lock, err := view.Acquire(ctx, "k", time.Minute)
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		if lock.Key() != "app:k" || s.holder("app:k") != lock.Token() {
			t.Errorf("Key = %q, stored by %q; want app:k, by the lock", lock.Key(), s.holder("app:k"))
		}
		var held *locco.HeldError
		if _, err := locker.TryAcquire(ctx, "k", time.Minute); !errors.As(err, &held) || held.Key != "app:k" {
			t.Errorf("TryAcquire = %v; want a HeldError with key app:k", err)
		}
		// Attach takes the key as Detach gave it.
		handle, err := lock.Detach()
		if err != nil || handle.Key != "app:k" {
			t.Fatalf("Detach = %+v, %v; want key app:k", handle, err)
		}
		if lock, err = locker.Attach(ctx, handle, time.Minute); err != nil || lock.Key() != "app:k" {
			t.Fatalf("Attach = %q, %v; want app:k", lock.Key(), err)
		}
		lock.Release(ctx)
		// Sets are asked by the key as it was given.
		set, err := locker.AcquireMany(ctx, []string{"b", "a"}, time.Minute)
		if err != nil {
			t.Fatalf("AcquireMany: %v", err)
		}
		if got := set.Get("a"); got == nil || got.Key() != "app:a" || set.Get("app:a") != nil {
			t.Errorf("Get(a), Get(app:a) = %v, %v; want app:a, nil", got.Key(), set.Get("app:a"))
		}
		set.Release(ctx)
	})
}

// spec 1.2
func TestOptionsTokenFunc(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	n := 0
	locker := newLocker(t, immediateStore(), locco.WithTokenFunc(func() string { n++; return fmt.Sprint("token ", n) }))
	for i := 1; i <= 2; i++ {
		lock, err := locker.Acquire(ctx, "k", time.Minute)
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		if got, want := lock.Token(), fmt.Sprint("token ", i); got != want {
			t.Errorf("Token = %q; want %q", got, want)
		}
		lock.Release(ctx)
	}
}

// A replaced clock may begin anywhere, and is the only one that counts.
//
// spec 1.5
func TestOptionsClock(t *testing.T) {
	t.Parallel()
	for _, origin := range []time.Duration{0, -time.Hour, 1, -1, 300 * 24 * time.Hour} {
		t.Run(origin.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				now := origin
				locker := newLocker(t, immediateStore(), locco.WithClock(func() time.Duration { return now }))
				lock, err := locker.Acquire(ctx, "k", 10*time.Second, locco.AutoExtend(time.Minute))
				if err != nil {
					t.Fatalf("Acquire: %v", err)
				}
				if got := lock.Remaining(); got != 9900*time.Millisecond {
					t.Errorf("Remaining = %v; want 9.9s", got)
				}
				now += 4 * time.Second
				if got := lock.HeldFor(); got != 4*time.Second {
					t.Errorf("HeldFor = %v; want 4s", got)
				}
				if got := time.Until(lock.HoldDeadline()); got != 56*time.Second {
					t.Errorf("HoldDeadline is %v ahead; want 56s", got)
				}
				now += 5900 * time.Millisecond
				if lock.State() != locco.StateLost || lock.Reason() != locco.ReasonExpired {
					t.Errorf("state, reason = %v, %q; want lost, expired", lock.State(), lock.Reason())
				}
				lock.Release(ctx)
			})
		})
	}
}

// A set reads the clock too, before any timer fires.
//
// spec 1.5, 2.5
func TestOptionsClockOfASet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lost func(*locco.LockSet) bool
	}{
		{"Err", func(set *locco.LockSet) bool { return errors.Is(set.Err(), locco.ErrLost) }},
		{"Bind", func(set *locco.LockSet) bool {
			bound := set.Bind(context.Background())
			return bound.Err() != nil && errors.Is(context.Cause(bound), locco.ErrLost)
		}},
		{"Lost", func(set *locco.LockSet) bool {
			select {
			case <-set.Lost():
				return true
			default:
				return false
			}
		}},
		{"Extend", func(set *locco.LockSet) bool {
			return errors.Is(set.Extend(context.Background(), time.Minute), locco.ErrLost)
		}},
		{"Release", func(set *locco.LockSet) bool { return errors.Is(set.Release(context.Background()), locco.ErrLost) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				now := time.Duration(0)
				locker := newLocker(t, immediateStore(), locco.WithClock(func() time.Duration { return now }))
				set, err := locker.AcquireMany(ctx, []string{"a", "b"}, 10*time.Second)
				if err != nil {
					t.Fatalf("AcquireMany: %v", err)
				}
				now = 9900 * time.Millisecond
				if !tc.lost(set) {
					t.Errorf("%s does not say that the set is lost", tc.name)
				}
				set.Release(ctx)
			})
		})
	}
}

// The locker's options can be taken back by a call, field by field.
//
// spec 4.2, 5.5, 1.10
func TestOptionsOverDefaults(t *testing.T) {
	t.Parallel()
	const s, ttl = time.Second, 9 * time.Second
	defaults := []locco.CallOption{locco.AutoExtend(time.Hour), locco.ExtendEvery(s), locco.LockDelay(5 * s)}
	for _, tc := range []struct {
		name     string
		opts     []locco.HoldOption
		maxHold  time.Duration // 0: none
		interval time.Duration // of the heartbeat
		stored   time.Duration
	}{
		{"Defaults", nil, time.Hour, s, 14 * s},
		{"NoAutoExtend", []locco.HoldOption{locco.NoAutoExtend()}, 0, 0, 14 * s},
		{"OtherMaxHold", []locco.HoldOption{locco.AutoExtend(time.Minute)}, time.Minute, s, 14 * s},
		{"OtherInterval", []locco.HoldOption{locco.ExtendEvery(2 * s)}, time.Hour, 2 * s, 14 * s},
		{"Anew", []locco.HoldOption{locco.NoAutoExtend(), locco.AutoExtend(time.Minute)}, time.Minute, 3 * s, 14 * s},
		{"NoDelay", []locco.HoldOption{locco.LockDelay(0)}, time.Hour, s, 9 * s},
		{"NilOptions", []locco.HoldOption{nil, nil}, time.Hour, s, 14 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				o := &optionLog{store: immediateStore()}
				locker := newLocker(t, o, locco.WithDefaults(defaults...))
				lock, err := locker.TryAcquire(ctx, "k", ttl, tc.opts...)
				if err != nil {
					t.Fatalf("TryAcquire: %v", err)
				}
				if got := o.last(t, "Acquire").lease.TTL; got != tc.stored {
					t.Errorf("stored for %v; want %v", got, tc.stored)
				}
				if deadline := lock.HoldDeadline(); deadline.IsZero() != (tc.maxHold == 0) || tc.maxHold != 0 && time.Until(deadline) != tc.maxHold {
					t.Errorf("HoldDeadline = %v; want %v ahead", deadline, tc.maxHold)
				}
				before := o.callCount()
				time.Sleep(6 * s)
				synctest.Wait()
				want := 0
				if tc.interval != 0 {
					want = int(6 * s / tc.interval)
				}
				if got := o.callCount() - before; got != want {
					t.Errorf("extensions in 6s = %d; want %d", got, want)
				}
				lock.Release(ctx)
			})
		})
	}
}

// A hold deadline goes on to count in the process that attaches, and one
// extension reaches it.
//
// spec 4.3, 4.5, 5.7
func TestOptionsOfAttach(t *testing.T) {
	t.Parallel()
	const s = time.Second
	forever := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name      string
		deadline  time.Duration // of the handle; 0: none, -1: beyond all bounds
		opts      []locco.HoldOption
		remaining time.Duration
		ends      time.Duration // when the lock is lost
		reason    locco.Reason
	}{
		{"NoDeadline", 0, nil, 9900 * time.Millisecond, 9900 * time.Millisecond, locco.ReasonExpired},
		{"FarDeadline", time.Hour, nil, 9900 * time.Millisecond, 9900 * time.Millisecond, locco.ReasonExpired},
		{"NearDeadline", 5 * s, nil, 5 * s, 5 * s, locco.ReasonMaxHold},
		{"NearDeadlineAndHeartbeat", 5 * s, []locco.HoldOption{locco.AutoExtend(time.Hour)}, 5 * s, 5 * s, locco.ReasonMaxHold},
		{"LaterDeadlineAndHeartbeat", 30 * s, []locco.HoldOption{locco.AutoExtend(time.Hour)}, 9900 * time.Millisecond, 30 * s, locco.ReasonMaxHold},
		{"BroughtForward", time.Hour, []locco.HoldOption{locco.AutoExtend(20 * s)}, 9900 * time.Millisecond, 20 * s, locco.ReasonMaxHold},
		{"ShortestDeadline", time.Millisecond, nil, time.Millisecond, time.Millisecond, locco.ReasonMaxHold},
		{"EndlessDeadline", -1, nil, 9900 * time.Millisecond, 9900 * time.Millisecond, locco.ReasonExpired},
		{"EndlessDeadlineAndHeartbeat", -1, []locco.HoldOption{locco.AutoExtend(20 * s)}, 9900 * time.Millisecond, 20 * s, locco.ReasonMaxHold},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				locker := newLocker(t, immediateStore())
				first, err := locker.Acquire(ctx, "k", time.Minute)
				if err != nil {
					t.Fatalf("Acquire: %v", err)
				}
				handle, err := first.Detach()
				if err != nil {
					t.Fatalf("Detach: %v", err)
				}
				began := time.Now()
				switch tc.deadline {
				case 0:
				case -1:
					handle.HoldDeadline = forever
				default:
					handle.HoldDeadline = began.Add(tc.deadline)
				}
				lock, err := locker.Attach(ctx, handle, 10*s, tc.opts...)
				if err != nil {
					t.Fatalf("Attach = %v; want nil", err)
				}
				if got := lock.Remaining(); got != tc.remaining {
					t.Errorf("Remaining = %v; want %v", got, tc.remaining)
				}
				<-lock.Lost()
				if got := time.Since(began); got != tc.ends || lock.Reason() != tc.reason {
					t.Errorf("lost after %v, %q; want %v, %q", got, lock.Reason(), tc.ends, tc.reason)
				}
				lock.Release(ctx)
			})
		})
	}
	for _, past := range []time.Duration{time.Millisecond - 1, 0, -time.Hour} {
		t.Run("Past"+past.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := immediateStore()
				handle := locco.Handle{Key: "k", Token: "t", HoldDeadline: time.Now().Add(past)}
				_, err := newLocker(t, s).Attach(context.Background(), handle, time.Minute)
				var lost *locco.LostError
				if !errors.As(err, &lost) || lost.Reason != locco.ReasonMaxHold || s.callCount() != 0 {
					t.Errorf("Attach = %v after %d calls; want lost by max-hold, no call", err, s.callCount())
				}
			})
		})
	}
}

// WithEvents(nil) means no hook, and the last one counts.
//
// spec 7.1
func TestOptionsEvents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		opts func(hook func(locco.Event)) []locco.Option
		want int
	}{
		{"Hook", func(h func(locco.Event)) []locco.Option { return []locco.Option{locco.WithEvents(h)} }, 2},
		{"Nil", func(func(locco.Event)) []locco.Option { return []locco.Option{locco.WithEvents(nil)} }, 0},
		{"LastIsNil", func(h func(locco.Event)) []locco.Option {
			return []locco.Option{locco.WithEvents(h), locco.WithEvents(nil)}
		}, 0},
		{"LastIsHook", func(h func(locco.Event)) []locco.Option {
			return []locco.Option{locco.WithEvents(func(locco.Event) { panic("replaced") }), locco.WithEvents(h)}
		}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := 0
			locker := newLocker(t, immediateStore(), tc.opts(func(locco.Event) { got++ })...)
			lock, err := locker.Acquire(ctx, "k", time.Minute)
			if err != nil {
				t.Fatalf("Acquire: %v", err)
			}
			lock.Release(ctx)
			if got != tc.want {
				t.Errorf("events = %d; want %d", got, tc.want)
			}
		})
	}
}
