package locco_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

var errWork = errors.New("work: failed")

// withLocks are the four ways to run a callback, with the same outcomes (spec
// 2.3). Do comes with a value, the others with none.
var withLocks = []struct {
	name string
	run  func(ctx context.Context, locker *locco.Locker, fn func(context.Context, *locco.Lock) error, opts ...locco.HoldOption) error
}{
	{"WithLock", func(ctx context.Context, locker *locco.Locker, fn func(context.Context, *locco.Lock) error, opts ...locco.HoldOption) error {
		return locker.WithLock(ctx, "k", 10*time.Second, fn, toCallOptions(opts)...)
	}},
	{"TryWithLock", func(ctx context.Context, locker *locco.Locker, fn func(context.Context, *locco.Lock) error, opts ...locco.HoldOption) error {
		ran, err := locker.TryWithLock(ctx, "k", 10*time.Second, fn, opts...)
		if !ran {
			return errors.New("TryWithLock did not run its callback")
		}
		return err
	}},
	{"Do", func(ctx context.Context, locker *locco.Locker, fn func(context.Context, *locco.Lock) error, opts ...locco.HoldOption) error {
		value, err := locco.Do(ctx, locker, "k", 10*time.Second, func(ctx context.Context, lock *locco.Lock) (int, error) {
			return 42, fn(ctx, lock)
		}, toCallOptions(opts)...)
		if value != 42 {
			return errors.New("Do lost the value of its callback")
		}
		return err
	}},
	{"WithLocks", func(ctx context.Context, locker *locco.Locker, fn func(context.Context, *locco.Lock) error, opts ...locco.HoldOption) error {
		return locker.WithLocks(ctx, []string{"l", "k"}, 10*time.Second, func(ctx context.Context, set *locco.LockSet) error {
			return fn(ctx, set.Get("k"))
		}, toCallOptions(opts)...)
	}},
}

func toCallOptions(opts []locco.HoldOption) []locco.CallOption {
	var all []locco.CallOption
	for _, o := range opts {
		all = append(all, o)
	}
	return all
}

// spec 2.3: the outcome of a callback, in its order.
func TestWithLockOutcomes(t *testing.T) {
	t.Parallel()
	background := context.Background()
	type work = func(ctx context.Context, b *loccotest.Backend, lock *locco.Lock) error
	lose := func(result error) work {
		return func(ctx context.Context, _ *loccotest.Backend, lock *locco.Lock) error {
			<-ctx.Done() // the lease ends
			return result
		}
	}
	failRelease := func(effect loccotest.Effect, result error) work {
		return func(_ context.Context, b *loccotest.Backend, _ *locco.Lock) error {
			b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k", Effect: effect})
			return result
		}
	}
	for _, tc := range []struct {
		name      string
		work      work
		want      []error // that the result matches; none: nil
		not       []error
		reason    locco.Reason // of the LostError
		completed bool
		freed     bool
		events    string
	}{
		{
			name:   "Works",
			work:   func(context.Context, *loccotest.Backend, *locco.Lock) error { return nil },
			freed:  true,
			events: "acquired, released freed",
		},
		{
			name:  "Fails",
			work:  func(context.Context, *loccotest.Backend, *locco.Lock) error { return errWork },
			want:  []error{errWork},
			not:   []error{locco.ErrLost},
			freed: true, events: "acquired, released freed",
		},
		{
			name:  "FailsWithErrHeldOfAnotherKey",
			work:  func(context.Context, *loccotest.Backend, *locco.Lock) error { return locco.ErrHeld },
			want:  []error{locco.ErrHeld},
			freed: true, events: "acquired, released freed",
		},
		{
			name: "WorksAndIsLost",
			work: lose(nil), want: []error{locco.ErrLost}, reason: locco.ReasonExpired, completed: true,
			freed: true, events: "acquired, lost expired",
		},
		{
			name: "FailsAndIsLost",
			work: lose(errWork), want: []error{errWork, locco.ErrLost}, reason: locco.ReasonExpired,
			freed: true, events: "acquired, lost expired",
		},
		{
			name: "FailsWithTheLoss",
			work: func(ctx context.Context, _ *loccotest.Backend, _ *locco.Lock) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			want: []error{locco.ErrLost}, reason: locco.ReasonExpired,
			freed: true, events: "acquired, lost expired",
		},
		{
			name: "WorksAndTheKeyIsGone",
			work: func(_ context.Context, b *loccotest.Backend, _ *locco.Lock) error { return b.Free(background, "k") },
			want: []error{locco.ErrLost}, reason: locco.ReasonRelease, completed: true,
			freed: true, events: "acquired, lost release",
		},
		{
			name: "FailsAndTheKeyIsGone",
			work: func(_ context.Context, b *loccotest.Backend, _ *locco.Lock) error {
				return errors.Join(errWork, b.Free(background, "k"))
			},
			want: []error{errWork, locco.ErrLost}, reason: locco.ReasonRelease,
			freed: true, events: "acquired, lost release",
		},
		{
			name:   "WorksAndReleaseFails",
			work:   failRelease(loccotest.FailRequest(errBroken), nil),
			events: "acquired, release failed, lost release",
		},
		{
			name: "WorksAndReleaseHasNoAnswer",
			work: failRelease(loccotest.DropRequest(), nil), events: "acquired, release failed, lost release",
		},
		{
			name: "WorksAndReleaseFailsAfterTheLease",
			work: func(_ context.Context, b *loccotest.Backend, _ *locco.Lock) error {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k", Effect: loccotest.DropRequest()})
				time.Sleep(8 * time.Second)
				return nil
			},
			freed: true, events: "acquired, release failed, lost release",
		},
		{
			name: "FailsAndReleaseFails",
			work: failRelease(loccotest.FailRequest(errBroken), errWork),
			want: []error{errWork}, not: []error{errBroken, locco.ErrLost},
			events: "acquired, release failed, lost release",
		},
		{
			name: "FailsAndReleaseFailsAfterTheLease",
			work: func(_ context.Context, b *loccotest.Backend, _ *locco.Lock) error {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k", Effect: loccotest.DropRequest()})
				time.Sleep(8 * time.Second)
				return errWork
			},
			want: []error{errWork}, not: []error{locco.ErrLost},
			freed: true, events: "acquired, release failed, lost release",
		},
		{
			name: "IsLostAndReleaseFails",
			work: func(ctx context.Context, b *loccotest.Backend, _ *locco.Lock) error {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k", Effect: loccotest.FailRequest(errBroken)})
				<-ctx.Done()
				return nil
			},
			want: []error{locco.ErrLost}, not: []error{errBroken}, reason: locco.ReasonExpired, completed: true,
			events: "acquired, lost expired, release failed",
		},
		{
			name:  "ReleasesItself",
			work:  func(ctx context.Context, _ *loccotest.Backend, lock *locco.Lock) error { return lock.Release(ctx) },
			freed: true, events: "acquired, released freed",
		},
		{
			name: "ReleasesItselfLongBeforeItsEnd",
			work: func(ctx context.Context, _ *loccotest.Backend, lock *locco.Lock) error {
				err := lock.Release(ctx)
				time.Sleep(9 * time.Second)
				return err
			},
			freed: true, events: "acquired, released freed",
		},
		{
			name: "ReleasesWhatWasLost",
			work: func(ctx context.Context, _ *loccotest.Backend, lock *locco.Lock) error {
				<-ctx.Done()
				lock.Release(ctx)
				return nil
			},
			want: []error{locco.ErrLost}, reason: locco.ReasonExpired, completed: true,
			freed: true, events: "acquired, lost expired",
		},
		{
			name: "ReleasesWhatIsGone",
			work: func(ctx context.Context, b *loccotest.Backend, lock *locco.Lock) error {
				b.Free(background, "k")
				lock.Release(ctx)
				return nil
			},
			want: []error{locco.ErrLost}, reason: locco.ReasonRelease, completed: true,
			freed: true, events: "acquired, lost release",
		},
		{
			name: "ReleasesItselfInVain",
			work: func(ctx context.Context, b *loccotest.Backend, lock *locco.Lock) error {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k", Effect: loccotest.FailRequest(errBroken)})
				lock.Release(ctx)
				time.Sleep(9 * time.Second)
				return nil
			},
			events: "acquired, release failed, release failed, lost release",
		},
		{
			name: "ReleasesItselfAtTheSecondTry",
			work: func(ctx context.Context, b *loccotest.Backend, lock *locco.Lock) error {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k", Times: 1, Effect: loccotest.FailAnswer(errBroken)})
				lock.Release(ctx)
				return nil
			},
			freed: true, events: "acquired, release failed, released freed",
		},
		{
			name: "Detaches",
			work: func(_ context.Context, _ *loccotest.Backend, lock *locco.Lock) error {
				_, err := lock.Detach()
				return err
			},
			events: "acquired, released detached",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, with := range withLocks {
				t.Run(with.name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						inner := newStore()
						b := loccotest.Wrap(inner)
						h := &hookLog{}
						locker := holdingLocker(t, b, locco.WithEvents(h.hook))
						err := with.run(background, locker, func(ctx context.Context, lock *locco.Lock) error {
							return tc.work(ctx, b, lock)
						})
						if len(tc.want) == 0 && err != nil {
							t.Errorf("error = %v; want nil", err)
						}
						for _, want := range tc.want {
							if !errors.Is(err, want) {
								t.Errorf("error = %v; want it to match %v", err, want)
							}
						}
						for _, not := range tc.not {
							if errors.Is(err, not) {
								t.Errorf("error = %v; want it not to match %v", err, not)
							}
						}
						var lost *locco.LostError
						if tc.reason != "" && errors.As(err, &lost) {
							// Of a set, the first loss: of the other lock, if both end at once.
							if lost.Reason != tc.reason || lost.Completed != tc.completed {
								t.Errorf("LostError: Reason, Completed = %v, %v; want %v, %v", lost.Reason, lost.Completed, tc.reason, tc.completed)
							}
						}
						if freed := inner.holder("k") == ""; freed != tc.freed && tc.reason == "" {
							t.Errorf("freed when it returned = %v; want %v", freed, tc.freed)
						}
						if n := b.Calls(loccotest.AnyExtend); n != 0 {
							t.Errorf("extensions = %d; want 0", n)
						}
						elapse(time.Minute)
						wantEvents(t, h, "k", tc.events)
					})
				})
			}
		})
	}
}

// spec 2.3: the LostError that is returned is a copy: the lock's own does not say
// that the work completed.
func TestCompletedIsTheCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		var held *locco.Lock
		err := locker.WithLock(context.Background(), "k", time.Second, func(ctx context.Context, lock *locco.Lock) error {
			held = lock
			<-ctx.Done()
			return nil
		})
		var lost, own *locco.LostError
		if !errors.As(err, &lost) || !lost.Completed || !errors.As(held.Err(), &own) || own.Completed {
			t.Errorf("WithLock, Err of the lock = %v, %v; want only the first to say completed", err, held.Err())
		}
	})
}

// spec 2.3: a panic or Goexit releases the lock and goes on.
func TestWithLockPanics(t *testing.T) {
	t.Parallel()
	for _, with := range withLocks {
		for _, tc := range []struct {
			name string
			end  func()
			want any
		}{
			{"Panic", func() { panic("oh") }, "oh"},
			{"Goexit", runtime.Goexit, nil},
		} {
			for _, released := range []string{"Frees", "Fails", "Lost"} {
				t.Run(with.name+"/"+tc.name+"/"+released, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						inner := newStore()
						b := loccotest.Wrap(inner)
						locker := holdingLocker(t, b)
						returned := false
						panicked := later(func() (value any) {
							done := make(chan any, 1)
							go func() {
								defer func() { done <- recover() }()
								with.run(context.Background(), locker, func(ctx context.Context, _ *locco.Lock) error {
									switch released {
									case "Fails":
										b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.FailRequest(errBroken)})
									case "Lost":
										<-ctx.Done()
									}
									tc.end()
									return nil
								})
								returned = true
							}()
							return <-done
						})
						elapse(20 * time.Second)
						value, _, done := panicked()
						if !done || value != tc.want {
							t.Errorf("recover() = %v, done %v; want %v", value, done, tc.want)
						}
						if returned {
							t.Error("it returned; want the panic or Goexit to go on")
						}
						if b.Calls(loccotest.Release) == 0 {
							t.Error("no release was sent")
						}
						if n := len(locker.Held()); n != 0 {
							t.Errorf("Held = %d locks; want 0", n)
						}
						if err := locker.Close(context.Background()); err != nil && released == "Frees" {
							t.Errorf("Close = %v; want nil", err)
						}
					})
				})
			}
		}
	}
}

// spec 2.3: the key is freed only after the callback returned, also when the
// caller's context ended long before.
func TestWithLockOutlivesItsContext(t *testing.T) {
	t.Parallel()
	for _, with := range withLocks {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				locker := holdingLocker(t, b)
				ctx, cancel := context.WithCancelCause(context.Background())
				time.AfterFunc(time.Second, func() { cancel(errPassing) })
				err := with.run(ctx, locker, func(ctx context.Context, lock *locco.Lock) error {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), errPassing) {
						t.Errorf("Cause in the callback = %v; want the caller's", context.Cause(ctx))
					}
					time.Sleep(time.Minute)
					if inner.holder("k") != lock.Token() {
						t.Error("the key was freed before the callback returned")
					}
					wantState(t, lock, locco.StateHeld)
					return nil
				}, locco.AutoExtend(time.Hour))
				if err != nil {
					t.Errorf("error = %v; want nil: the callback worked, and held the lock", err)
				}
				if inner.holder("k") != "" {
					t.Error("the key is taken after the callback returned")
				}
			})
		})
	}
}

// spec 2.3, 5.3: the callback's context ends with the callback's hold.
func TestWithLockContextEndsWithTheHold(t *testing.T) {
	t.Parallel()
	for _, with := range withLocks {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				locker := holdingLocker(t, newStore())
				var kept context.Context
				err := with.run(context.WithValue(context.Background(), ctxKey{}, "v"), locker,
					func(ctx context.Context, _ *locco.Lock) error {
						kept = ctx
						if ctx.Value(ctxKey{}) != "v" {
							t.Error("the callback's context lost the caller's values")
						}
						return ctx.Err()
					})
				if err != nil {
					t.Errorf("error = %v; want nil", err)
				}
				if !errors.Is(context.Cause(kept), locco.ErrReleased) {
					t.Errorf("Cause after the end = %v; want ErrReleased", context.Cause(kept))
				}
			})
		})
	}
}

// spec 2.4: when WithLock has ended, the heartbeat has too, whatever became of
// the release.
func TestWithLockEndsTheHeartbeat(t *testing.T) {
	t.Parallel()
	for _, with := range withLocks {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				err := with.run(context.Background(), locker, func(context.Context, *locco.Lock) error {
					b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.FailRequest(errBroken)})
					time.Sleep(5 * time.Second)
					return nil
				}, locco.AutoExtend(time.Hour))
				if err != nil {
					t.Errorf("error = %v; want nil", err)
				}
				sent := b.Calls(loccotest.AnyExtend)
				elapse(time.Minute)
				if n := b.Calls(loccotest.AnyExtend); sent == 0 || n != sent {
					t.Errorf("extensions before and after the end = %d, %d; want some and none", sent, n-sent)
				}
				if n := locco.KeptLocks(locker); n != 0 {
					t.Errorf("locks kept when the lease is over = %d; want 0", n)
				}
			})
		})
	}
}

// spec 2.2, 2.3: did not run is told apart from the callback's own error.
func TestTryWithLockTellsWhetherItRan(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "held", time.Minute)
		never := func(context.Context, *locco.Lock) error {
			t.Error("the callback ran")
			return nil
		}
		if ran, err := locker.TryWithLock(ctx, "held", time.Second, never); ran || !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryWithLock of a held key = %v, %v; want false, ErrHeld", ran, err)
		}
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		if ran, err := locker.TryWithLock(ctx, "k", time.Second, never); ran || err != errBroken {
			t.Errorf("TryWithLock with a driver error = %v, %v; want false and the error", ran, err)
		}
		synctest.Wait()
		if ran, err := locker.TryWithLock(ctx, "k", 0, never); ran || !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("TryWithLock with a bad TTL = %v, %v; want false, ErrInvalid", ran, err)
		}
		ran, err := locker.TryWithLock(ctx, "k", time.Second, func(ctx context.Context, _ *locco.Lock) error {
			_, err := locker.TryAcquire(ctx, "held", time.Second)
			return err
		})
		if !ran || !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryWithLock whose callback met ErrHeld = %v, %v; want true, ErrHeld", ran, err)
		}
		lock.Release(ctx)
	})
}

// spec 2.3: without a lock there is no callback and no value.
func TestWithLockWithoutALock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errPassing)
	for _, tc := range []struct {
		name string
		ctx  context.Context
		key  string
		fn   func(context.Context, *locco.Lock) error
		want error
	}{
		{"Held", ctx, "held", func(context.Context, *locco.Lock) error { panic("ran") }, locco.ErrHeld},
		{"BadKey", ctx, "", func(context.Context, *locco.Lock) error { panic("ran") }, locco.ErrInvalid},
		{"EndedContext", ended, "k", func(context.Context, *locco.Lock) error { panic("ran") }, errPassing},
		{"NilContext", nil, "k", func(context.Context, *locco.Lock) error { panic("ran") }, locco.ErrInvalid},
		{"NilCallback", ctx, "k", nil, locco.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newStore()
				b.take("held", time.Hour)
				locker := holdingLocker(t, b)
				if err := locker.WithLock(tc.ctx, tc.key, time.Second, tc.fn, locco.Retries(1)); !errors.Is(err, tc.want) {
					t.Errorf("WithLock = %v; want %v", err, tc.want)
				}
				var do func(context.Context, *locco.Lock) (int, error)
				var many func(context.Context, *locco.LockSet) error
				if tc.fn != nil {
					do = func(ctx context.Context, l *locco.Lock) (int, error) { return 42, tc.fn(ctx, l) }
					many = func(ctx context.Context, s *locco.LockSet) error { return tc.fn(ctx, s.Locks()[0]) }
				}
				value, err := locco.Do(tc.ctx, locker, tc.key, time.Second, do, locco.Retries(1))
				if !errors.Is(err, tc.want) || value != 0 {
					t.Errorf("Do = %v, %v; want 0, %v", value, err, tc.want)
				}
				if err := locker.WithLocks(tc.ctx, []string{tc.key}, time.Second, many, locco.Retries(1)); !errors.Is(err, tc.want) {
					t.Errorf("WithLocks = %v; want %v", err, tc.want)
				}
				if _, err := locker.TryWithLock(tc.ctx, tc.key, time.Second, tc.fn); !errors.Is(err, tc.want) {
					t.Errorf("TryWithLock = %v; want %v", err, tc.want)
				}
				if err := locker.Close(ctx); err != nil { // no callback is counted that is not there
					t.Errorf("Close = %v; want nil", err)
				}
			})
		})
	}
}

// spec 2.3, 5.5: a callback's release leaves the key where HoldAtLeast says so.
func TestWithLockHoldsAtLeast(t *testing.T) {
	t.Parallel()
	for _, with := range withLocks {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				locker := holdingLocker(t, inner)
				err := with.run(context.Background(), locker, func(context.Context, *locco.Lock) error { return nil },
					locco.HoldAtLeast(5*time.Second))
				if err != nil {
					t.Errorf("error = %v; want nil", err)
				}
				elapse(5*time.Second - 1)
				if inner.holder("k") == "" {
					t.Error("the key is free before HoldAtLeast has passed")
				}
				elapse(1)
				if inner.holder("k") != "" {
					t.Error("the key is taken when HoldAtLeast has passed")
				}
			})
		})
	}
}

// spec 2.3: of a set, the loss of any lock is a loss, and a loss that comes from
// a release that failed is none.
func TestWithLocksIsLostByAnyLock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		work func(ctx context.Context, b *loccotest.Backend, set *locco.LockSet) error
		lost string // the key
	}{
		{"First", func(_ context.Context, b *loccotest.Backend, _ *locco.LockSet) error { return b.Free(ctx, "a") }, "a"},
		{"Last", func(_ context.Context, b *loccotest.Backend, _ *locco.LockSet) error { return b.Free(ctx, "c") }, "c"},
		{"None", func(context.Context, *loccotest.Backend, *locco.LockSet) error { return nil }, ""},
		{"LastAndTheFirstReleaseFails", func(_ context.Context, b *loccotest.Backend, _ *locco.LockSet) error {
			b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "a", Effect: loccotest.DropRequest()})
			time.Sleep(8 * time.Second)
			return b.Free(ctx, "c")
		}, "c"},
		{"AllOneAfterTheOther", func(ctx context.Context, _ *loccotest.Backend, set *locco.LockSet) error {
			set.Get("b").Extend(ctx, time.Second)
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		}, "b"},
		{"OneReleasedByItself", func(ctx context.Context, _ *loccotest.Backend, set *locco.LockSet) error {
			return set.Get("b").Release(ctx)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				err := locker.WithLocks(ctx, []string{"a", "b", "c"}, 10*time.Second, func(ctx context.Context, set *locco.LockSet) error {
					return tc.work(ctx, b, set)
				})
				if tc.lost == "" {
					if err != nil {
						t.Errorf("WithLocks = %v; want nil", err)
					}
					return
				}
				reason := locco.ReasonRelease
				if tc.lost == "b" {
					reason = locco.ReasonExpired
				}
				wantLostError(t, err, tc.lost, reason, nil)
				var lost *locco.LostError
				if errors.As(err, &lost) && !lost.Completed {
					t.Error("Completed = false; want true")
				}
			})
		})
	}
}
