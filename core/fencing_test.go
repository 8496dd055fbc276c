package locco_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 6.1, 6.4: however one grant follows another, its fence is larger.
func TestFencesGrow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		next func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock
	}{
		{"Release", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			l.Release(t.Context())
			return w.goAcquire(t.Context(), "k", time.Second).lock(0)
		}},
		{"TryAcquire", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			l.Release(t.Context())
			return w.goTry(t.Context(), "k", time.Second).lock(0)
		}},
		{"Expiry", func(t *testing.T, w *wire, _ *locco.Lock) *locco.Lock {
			return w.goAcquire(t.Context(), "k", time.Second).lock(time.Second)
		}},
		{"HandOver", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			p := w.goAcquire(t.Context(), "k", time.Second)
			l.Release(t.Context())
			w.wantSent(loccotest.Transfer, 0)
			return p.lock(0)
		}},
		{"PassedOn", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			ctx, cancel := context.WithCancel(t.Context())
			gone := w.goAcquire(ctx, "k", time.Second)
			p := w.goAcquire(t.Context(), "k", time.Second)
			w.store.mu.Lock()
			w.store.onGrant = func(string, string) { cancel() }
			w.store.mu.Unlock()
			l.Release(t.Context())
			gone.fails(0, context.Canceled)
			return p.lock(0)
		}},
		{"LostAnswer", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			l.Release(t.Context())
			w.inject(loccotest.Acquire, 1, loccotest.FailAnswer(errPassing))
			return w.goAcquire(t.Context(), "k", time.Second).lock(200 * ms)
		}},
		{"Together", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			l.Release(t.Context())
			return w.goMany(t.Context(), []string{"j", "k"}, time.Second).gets(0).Get("k")
		}},
		{"LostAnswerTogether", func(t *testing.T, w *wire, l *locco.Lock) *locco.Lock {
			l.Release(t.Context())
			w.inject(loccotest.AcquireMany, 1, loccotest.FailAnswer(errPassing))
			return w.goMany(t.Context(), []string{"j", "k"}, time.Second).gets(0).Get("k")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(nil, locco.WithFencing())
				l := w.goAcquire(t.Context(), "k", time.Second).lock(0)
				if l.Fence() < 1 {
					t.Errorf("Fence = %d; want it positive", l.Fence())
				}
				next := tc.next(t, w, l)
				if next.Fence() <= l.Fence() {
					t.Errorf("Fence = %d after %d; want it larger", next.Fence(), l.Fence())
				}
				w.store.mu.Lock()
				if next.Fence() != w.store.fence {
					t.Errorf("Fence = %d; want the latest, %d", next.Fence(), w.store.fence)
				}
				w.store.mu.Unlock()
				evs := w.seen(locco.EventAcquired)
				if got := evs[len(evs)-1].Fence; got != next.Fence() {
					t.Errorf("the event's fence is %d; want %d", got, next.Fence())
				}
			})
		})
	}
}

// spec 5.1, 6.1: extensions draw no fence.
func TestFenceStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(nil, locco.WithFencing())
		l := w.goAcquire(t.Context(), "k", time.Second, locco.AutoExtend(time.Minute)).lock(0)
		w.sleepTo(10 * time.Second)
		if err := l.Extend(t.Context(), 2*time.Second); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		if l.Fence() != 1 {
			t.Errorf("Fence = %d; want 1, as granted", l.Fence())
		}
	})
}

// spec 5.1, 6.2: without the option there is none, and both kinds of holder share
// a backend.
func TestFencingOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		fenced := newLocker(t, w.Backend, locco.WithFencing())
		w.dial(nil)
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		if l.Fence() != 0 || w.sent(loccotest.Acquire)[0].leases[0].Fenced {
			t.Errorf("Fence = %d; want 0, and that none was asked for", l.Fence())
		}
		if _, err := fenced.TryAcquire(t.Context(), "k", time.Minute); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire of the other locker = %v; want ErrHeld", err)
		}
		l.Release(t.Context())
		other, err := fenced.TryAcquire(t.Context(), "k", time.Minute)
		if err != nil || other.Fence() != 1 {
			t.Errorf("TryAcquire = fence %d, %v; want fence 1", other.Fence(), err)
		}
	})
}

// fenceless is a Fencer that has none today.
type fenceless struct{ locco.Backend }

func (fenceless) Fences() bool { return false }

// spec 6.3
func TestFencingUnsupported(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]locco.Backend{
		"NoFencer": plainStore{newStore()},
		"NoFences": fenceless{newStore()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := locco.New(b, locco.WithFencing())
			invalid, ok := errors.AsType[*locco.ValidationError](err)
			if !ok || invalid.Field != "WithFencing" || !errors.Is(err, locco.ErrInvalid) {
				t.Errorf("New = %v; want a *ValidationError of WithFencing", err)
			}
			if _, err := locco.New(b); err != nil {
				t.Errorf("New without fencing = %v; want nil", err)
			}
		})
	}
}

// spec 6.1: positive, below 2^53; a grant without such a fence is no lock, and is
// given back.
func TestFenceOutOfRange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before int64 // of the counter
		ok     bool
	}{
		{"Negative", -5, false},
		{"Zero", -1, false},
		{"Smallest", 0, true},
		{"Largest", 1<<53 - 2, true},
		{"TooLarge", 1<<53 - 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, try := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.dial(nil, locco.WithFencing())
					w.store.fence = tc.before
					p := w.goTake(t.Context(), try, "k", time.Minute)
					o := p.wait()
					if (o.err == nil) != tc.ok {
						t.Errorf("Acquire with fence %d = %v; want a lock: %v", tc.before+1, o.err, tc.ok)
					}
					if tc.ok {
						return
					}
					matchesNone(t, o.err, locco.ErrHeld, locco.ErrLate)
					synctest.Wait()
					w.wantHolder("k", nil)
					w.wantReleased(w.sent(loccotest.Acquire)[0].token)
				})
			}
		})
	}
}
