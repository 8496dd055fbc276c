package locco_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 7.1: every event has its key and TTL, and what its kind names.
func TestHookEventFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithPrefix("p:"), locco.WithEvents(h.hook), locco.WithFencing())
		ctx := context.Background()
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(20*time.Second))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		elapse(4 * time.Second)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.FailRequest(errPassing)})
		elapse(time.Second)
		lock.Release(ctx)
		elapse(time.Second)
		lock.Release(ctx)
		short := hold(t, locker, "short", time.Second)
		elapse(time.Second)
		short.Release(ctx)
		for _, want := range []locco.Event{
			{Kind: locco.EventAcquired, Key: "p:k", TTL: 9 * time.Second, Attempts: 1, Fence: 1},
			{Kind: locco.EventExtendFailed, Key: "p:k", TTL: 9 * time.Second, Held: 3 * time.Second, Err: errBroken},
			{Kind: locco.EventExtended, Key: "p:k", TTL: 9 * time.Second, Held: 4 * time.Second, Left: 8910 * time.Millisecond},
			{Kind: locco.EventReleaseFailed, Key: "p:k", TTL: 9 * time.Second, Held: 5 * time.Second, Err: errPassing},
			{Kind: locco.EventReleased, Key: "p:k", TTL: 9 * time.Second, Held: 5 * time.Second, Outcome: locco.OutcomeFreed},
			{Kind: locco.EventAcquired, Key: "p:short", TTL: time.Second, Attempts: 1, Fence: 2},
			{Kind: locco.EventLost, Key: "p:short", TTL: time.Second, Held: 990 * time.Millisecond, Reason: locco.ReasonExpired},
		} {
			h.mu.Lock()
			if len(h.events) == 0 || h.events[0] != want {
				t.Fatalf("events = %+v; want next %+v", h.events, want)
			}
			h.events = h.events[1:]
			h.mu.Unlock()
		}
		if len(h.events) != 0 {
			t.Errorf("events = %+v; want no more", h.events)
		}
	})
}

// spec 7.1: a panic in the hook is contained.
func TestHookThatPanics(t *testing.T) {
	t.Parallel()
	for _, immediate := range []bool{true, false} {
		t.Run(fmt.Sprintf("Immediate=%v", immediate), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newStore()
				b.immediate = immediate
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(func(ev locco.Event) {
					h.hook(ev)
					panic("the hook")
				}))
				ctx := context.Background()
				lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
				elapse(4 * time.Second)
				if err := lock.Extend(ctx, 9*time.Second); err != nil {
					t.Errorf("Extend = %v; want nil", err)
				}
				if _, err := locker.TryAcquire(ctx, "k", time.Second); !errors.Is(err, locco.ErrHeld) {
					t.Errorf("TryAcquire = %v; want ErrHeld", err)
				}
				if err := lock.Release(ctx); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				lost := hold(t, locker, "lost", time.Second)
				elapse(time.Minute)
				wantLost(t, lost, locco.ReasonExpired, nil)
				wantEvents(t, h, "k", "acquired, "+strings.Repeat("extended, ", 2)+"contended held, acquire failed, released freed")
				wantEvents(t, h, "lost", "acquired, lost expired")
			})
		})
	}
}

// spec 7.1: a hook that ends its goroutine, as t.FailNow does in a test, breaks
// nothing but that.
func TestHookThatExitsItsGoroutine(t *testing.T) {
	t.Parallel()
	for _, kind := range []locco.EventKind{locco.EventExtended, locco.EventReleased, locco.EventExtendFailed} {
		t.Run(strings.ReplaceAll(kind.String(), " ", ""), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				var exits atomic.Int32
				locker := holdingLocker(t, b, locco.WithEvents(func(ev locco.Event) {
					h.hook(ev)
					if ev.Kind == kind && exits.Add(1) == 1 {
						runtime.Goexit()
					}
				}))
				lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
				if kind == locco.EventExtendFailed {
					b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
				}
				elapse(4 * time.Second)
				go lock.Release(context.Background())
				elapse(time.Second)
				wantState(t, lock, locco.StateReleased)
				if exits.Load() != 1 {
					t.Errorf("exits = %d; want 1", exits.Load())
				}
				if got := h.of("k"); !strings.HasSuffix(got, ", released freed") {
					t.Errorf("events = %s; want released at the end", got)
				}
				if err := locker.Close(context.Background()); err != nil {
					t.Errorf("Close = %v; want nil", err)
				}
			})
		})
	}
}

// reentrant is a hook that calls all it can of the locker and of the locks, for
// every event.
type reentrant struct {
	hookLog
	locker atomic.Pointer[locco.Locker]
	mu2    sync.Mutex
	locks  map[string]*locco.Lock // the last of each key
	set    *locco.LockSet
	depth  atomic.Int32
}

func (r *reentrant) hook(ev locco.Event) {
	r.hookLog.hook(ev)
	locker := r.locker.Load()
	if locker == nil || r.depth.Add(1) > 3 { // its own events come here too
		return
	}
	defer r.depth.Add(-1)
	ctx := context.Background()
	r.mu2.Lock()
	lock, set := r.locks[ev.Key], r.set
	r.mu2.Unlock()
	locker.Held()
	lock.State()
	lock.Err()
	lock.Remaining()
	lock.Lost()
	lock.Bind(ctx)
	lock.Check(ctx)
	if ev.Kind == locco.EventLost || ev.Kind == locco.EventExtendFailed || ev.Kind == locco.EventExtended {
		lock.Extend(ctx, 9*time.Second)
		set.Extend(ctx, 9*time.Second)
	}
	set.Err()
	set.Lost()
	if ev.Kind != locco.EventAcquired && ev.Kind != locco.EventContended && !strings.HasPrefix(ev.Key, "other") {
		if ev.Kind == locco.EventReleased || ev.Kind == locco.EventLost || ev.Kind == locco.EventReleaseFailed {
			lock.Release(ctx)
		}
		if other, err := locker.TryAcquire(ctx, "other"+ev.Key, time.Second); err == nil {
			other.Release(ctx)
		}
		locker.WithLock(ctx, "other2"+ev.Key, time.Second, func(context.Context, *locco.Lock) error { return nil })
	}
}

func (r *reentrant) know(locks ...*locco.Lock) {
	r.mu2.Lock()
	defer r.mu2.Unlock()
	if r.locks == nil {
		r.locks = map[string]*locco.Lock{}
	}
	for _, lock := range locks {
		r.locks[lock.Key()] = lock
	}
}

// spec 7.1: the hook is called outside every mutex, and may call back.
func TestHookThatCallsBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		immediate bool
		wrap      func(*store) locco.Backend
	}{
		{"Grouped", false, func(s *store) locco.Backend { return loccotest.Wrap(s) }},
		{"OneByOne", false, func(s *store) locco.Backend { return plainStore{loccotest.Wrap(s)} }},
		{"Immediate", true, func(s *store) locco.Backend { return s }},
		{"ImmediateOneByOne", true, func(s *store) locco.Backend { return &relay{Backend: s, before: func(locco.Lease) {}} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				inner.immediate = tc.immediate
				r := &reentrant{}
				locker := holdingLocker(t, tc.wrap(inner), locco.WithEvents(r.hook))
				r.locker.Store(locker)
				ctx := context.Background()
				var locks []*locco.Lock
				for i := range 4 {
					locks = append(locks, hold(t, locker, manyKey(i), 9*time.Second, locco.AutoExtend(day)))
				}
				r.know(locks...)
				set := holdSet(t, locker, "s1 s2 s3", 9*time.Second, locco.AutoExtend(day))
				r.know(set.Locks()...)
				r.mu2.Lock()
				r.set = set
				r.mu2.Unlock()
				elapse(4 * time.Second)
				inner.take(manyKey(0), time.Minute)
				elapse(4 * time.Second)
				wantLost(t, locks[0], locco.ReasonExtend, nil)
				inner.take("s2", time.Minute)
				if err := set.Extend(ctx, 9*time.Second); !errors.Is(err, locco.ErrLost) {
					t.Errorf("Extend of a set that lost a lock = %v; want ErrLost", err)
				}
				if err := locks[1].Release(ctx); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				inner.take(manyKey(2), time.Minute)
				if err := locks[2].Check(ctx); !errors.Is(err, locco.ErrLost) {
					t.Errorf("Check = %v; want ErrLost", err)
				}
				if err := set.Release(ctx); !errors.Is(err, locco.ErrLost) {
					t.Errorf("Release of the set = %v; want ErrLost", err)
				}
				locker.WithLock(ctx, "w", 9*time.Second, func(_ context.Context, lock *locco.Lock) error {
					r.know(lock)
					return lock.Extend(ctx, time.Second)
				})
				if err := locker.Close(ctx); err != nil {
					t.Errorf("Close = %v; want nil", err)
				}
				for _, key := range []string{manyKey(0), manyKey(1), manyKey(2), manyKey(3), "s1", "s2", "s3", "w"} {
					got := r.of(key)
					if n := strings.Count(got, "lost ") + strings.Count(got, "released "); n != 1 {
						t.Errorf("events of %q = %s; want one ending", key, got)
					}
				}
			})
		})
	}
}

// spec 7.1: the hook of one lock's loss extends the other locks of its set while
// that set is being extended.
func TestHookThatExtendsTheSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Pointer[locco.LockSet]
		var extended atomic.Int32
		clock := newJumpClock()
		locker := holdingLocker(t, loccotest.Wrap(newStore()), locco.WithClock(clock.now), locco.WithEvents(func(ev locco.Event) {
			if ev.Kind == locco.EventLost && ev.Key == "b" {
				if err := set.Load().Get("a").Extend(context.Background(), time.Hour); err == nil {
					extended.Add(1)
				}
			}
		}))
		set.Store(holdSet(t, locker, "a b c", time.Minute))
		set.Load().Get("b").Extend(context.Background(), time.Second)
		clock.jump(2 * time.Second) // the Extend of the set is the first to see that b is lost
		if err := set.Load().Extend(context.Background(), time.Minute); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Extend = %v; want ErrLost", err)
		}
		if extended.Load() != 1 {
			t.Error("the hook did not extend")
		}
	})
}

// spec 7.1, 4.4: the hook extends its lock while another Extend of it is about to
// be sent: that one is not held up by the event of the one before.
func TestHookThatExtendsItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		ctx := context.Background()
		var a atomic.Pointer[locco.Lock]
		var extended atomic.Int32
		locker := holdingLocker(t, plainStore{b}, locco.WithEvents(func(ev locco.Event) {
			if lock := a.Load(); lock != nil && ev.Kind == locco.EventExtended && ev.Key == "a" && extended.Add(1) == 1 {
				if err := lock.Extend(ctx, time.Minute); err != nil {
					t.Errorf("Extend in the hook = %v; want nil", err)
				}
			}
		}))
		set := holdSet(t, locker, "a b", time.Minute)
		a.Store(set.Get("a"))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Key: "b", Effect: loccotest.DelayAnswer(time.Second)})
		all := later(func() error { return set.Extend(ctx, time.Minute) })
		elapse(100 * time.Millisecond) // a has its answer, and its event waits for b's
		if err := a.Load().Extend(ctx, time.Minute); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		elapse(time.Minute / 2)
		if err, _, done := all(); err != nil || !done {
			t.Errorf("Extend of the set = %v, done %v; want nil", err, done)
		}
		if n := extended.Load(); n != 3 {
			t.Errorf("extended events of a = %d; want 3", n)
		}
	})
}

// spec 7.1: a hook that blocks for one lock does not stop the extension of
// others, nor of that lock.
func TestHookThatBlocks(t *testing.T) {
	t.Parallel()
	for _, backend := range []struct {
		name      string
		immediate bool
		wrap      func(*store) locco.Backend
	}{
		{"Grouped", false, func(s *store) locco.Backend { return s }},
		{"OneByOne", false, func(s *store) locco.Backend { return plainStore{s} }},
		{"Immediate", true, func(s *store) locco.Backend { return s }},
		{"ImmediateOneByOne", true, func(s *store) locco.Backend { return &relay{Backend: s, before: func(locco.Lease) {}} }},
		{"Unsupported", false, func(s *store) locco.Backend { return loccotest.Wrap(plainStore{s}) }},
	} {
		for _, kind := range []locco.EventKind{
			locco.EventExtended, locco.EventExtendFailed, locco.EventLost, locco.EventReleased, locco.EventNotice, locco.EventAcquired,
		} {
			t.Run(backend.name+"/"+strings.ReplaceAll(kind.String(), " ", ""), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					inner := newStore()
					inner.immediate = backend.immediate
					unblock := make(chan struct{})
					var blocked atomic.Int32
					locker := holdingLocker(t, backend.wrap(inner), locco.WithEvents(func(ev locco.Event) {
						if ev.Kind == kind && (ev.Key == "a" || kind == locco.EventNotice) {
							blocked.Add(1)
							<-unblock
						}
					}))
					// Of all the leases and intervals, some come before a's and some after.
					var locks []*locco.Lock
					for i := range 6 {
						ttl := time.Duration(7+i) * time.Second
						if i%2 == 0 {
							ttl = 9 * time.Second
						}
						locks = append(locks, hold(t, locker, manyKey(i), ttl, locco.AutoExtend(day)))
					}
					a := later(func() *locco.Lock { return hold(t, locker, "a", 9*time.Second, locco.AutoExtend(day)) })
					elapse(time.Second)
					switch kind {
					case locco.EventLost:
						inner.take("a", time.Hour)
					case locco.EventReleased:
						lock, _, _ := a()
						go lock.Release(context.Background())
					}
					elapse(time.Minute)
					for _, lock := range locks {
						if lock.State() != locco.StateHeld {
							t.Errorf("%q: %v; want it held while the hook blocks", lock.Key(), lock.Err())
						}
					}
					wantBlocked := kind != locco.EventExtendFailed && (kind != locco.EventNotice || backend.name == "Unsupported")
					if (blocked.Load() > 0) != wantBlocked {
						t.Errorf("the hook blocked %d times", blocked.Load())
					}
					if kind == locco.EventExtended || kind == locco.EventAcquired {
						for _, l := range locker.Held() {
							if l.Key() == "a" && l.HeldFor() < time.Minute {
								t.Errorf("held for %v", l.HeldFor())
							}
						}
						if n := len(locker.Held()); n != 7 {
							t.Errorf("Held = %d locks; want 7: its own hook does not stop the heartbeat either", n)
						}
					}
					close(unblock)
					synctest.Wait()
				})
			})
		}
	}
}

// spec 7.1: the events of one lock come in order, one after the other, however
// slow the hook is and whoever causes them.
func TestHookOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		var inside atomic.Int32
		locker := holdingLocker(t, b, locco.WithEvents(func(ev locco.Event) {
			if inside.Add(1) > 1 {
				t.Error("the hook is called for one lock by two goroutines at once")
			}
			h.hook(ev)
			time.Sleep(5 * time.Second)
			inside.Add(-1)
		}))
		begin := time.Now()
		lock := hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Acquire took %v; want 5s, for its own event", took)
		}
		elapse(30 * time.Second)
		for range 3 {
			lock.Extend(context.Background(), 9*time.Second)
			elapse(time.Second)
		}
		b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		begin = time.Now()
		if err := lock.Release(context.Background()); err != errBroken {
			t.Errorf("Release = %v; want %v", err, errBroken)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("Release took %v; want no time: its event is in line behind another goroutine's", took)
		}
		elapse(10 * time.Minute)
		got := h.of("k")
		if !strings.HasPrefix(got, "acquired, extended, ") || !strings.HasSuffix(got, "extended, release failed, released freed") {
			t.Errorf("events = %s; want acquired, extended …, release failed, released", got)
		}
		if n := strings.Count(got, "extended"); n != b.Calls(loccotest.Extend) {
			t.Errorf("extended events = %d; want one for each of %d", n, b.Calls(loccotest.Extend))
		}
	})
}

// spec 7.1: an ending is reported once, whatever ends the lock at the same
// moment.
func TestOneEndingConcurrentSafe(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		for round := range 150 {
			key := manyKey(round)
			lock := hold(t, locker, key, time.Second, locco.AutoExtend(1100*time.Millisecond))
			lost, bound := lock.Lost(), lock.Bind(ctx)
			if round%3 == 0 {
				b.Free(ctx, key)
			}
			if round%4 == 0 {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Key: key, Times: 1, Effect: loccotest.FailAnswer(errBroken)})
			}
			at := []time.Duration{0, time.Second / 3, 1100 * time.Millisecond}[round/3%3]
			var group sync.WaitGroup
			for _, f := range []func(){
				func() { lock.Release(ctx) },
				func() { lock.Release(ctx) },
				func() { lock.Check(ctx) },
				func() { lock.Extend(ctx, time.Second) },
				func() { lock.State() },
				func() {
					if round%5 == 0 {
						lock.Detach()
					}
				},
			} {
				group.Go(func() {
					time.Sleep(at)
					f()
				})
			}
			group.Wait()
			elapse(3 * time.Second)
			got := h.of(key)
			if n := strings.Count(got, "released ") + strings.Count(got, "lost "); n != 1 {
				t.Errorf("events of %q = %s; want one ending", key, got)
			}
			if last := got[strings.LastIndex(got, ", ")+2:]; !strings.HasPrefix(last, "released ") &&
				!strings.HasPrefix(last, "lost ") && !strings.HasPrefix(last, "release failed") {
				t.Errorf("events of %q = %s; want none after the ending", key, got)
			}
			if isClosed(lost) != strings.Contains(got, "lost ") {
				t.Errorf("events of %q = %s, but Lost closed is %v", key, got, isClosed(lost))
			}
			if bound.Err() == nil {
				t.Errorf("a bound context of %q is live", key)
			}
		}
	})
}
