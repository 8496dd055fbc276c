package loccotest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/locco-go/locco/core/loccotest"
)

// awake tells whether a wake-up is there, once nothing moves any more.
func awake(wake <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// watching returns two watches and a function that makes a wake-up for a key.
func watching(t *testing.T, ctx context.Context, b *loccotest.Backend) (k, j <-chan struct{}, release func(key string)) {
	t.Helper()
	var wakes []<-chan struct{}
	for _, key := range []string{"k", "j"} {
		wake, stop, err := b.Watch(ctx, key)
		if err != nil {
			t.Fatalf("Watch(%q) = %v; want no error", key, err)
		}
		t.Cleanup(stop)
		wakes = append(wakes, wake)
	}
	return wakes[0], wakes[1], func(key string) {
		t.Helper()
		grant(t, b, lease(key, "t"))
		if ours, err := b.Release(t.Context(), key, "t"); !ours || err != nil {
			t.Fatalf("Release(%q) = %v, %v; want true, <nil>", key, ours, err)
		}
	}
}

func TestWakeupsPassThrough(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, ctx context.Context) {
		k, j, release := watching(t, ctx, loccotest.Wrap(&full{}))
		if awake(k) {
			t.Error("a wake-up came before the key was released")
		}
		for range 3 { // more than there is room for: a sender never blocks
			release("k")
			synctest.Wait()
		}
		if !awake(k) {
			t.Error("no wake-up came though the key was released")
		}
		if awake(k) {
			t.Error("a second wake-up was kept; want room for one")
		}
		if awake(j) {
			t.Error("a wake-up came for another key")
		}
	})
}

func TestLoseWakeups(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		key  string
		n    int
		k    []bool // which releases of k wake
		j    bool
	}{
		{"OfOneKey", "k", 2, []bool{false, false, true, true}, true},
		{"OfEveryKey", "", 5, []bool{false, false, false, false}, false},
		{"UntilCleared", "k", 0, []bool{false, false, false, false}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				b := loccotest.Wrap(&full{})
				k, j, release := watching(t, ctx, b)
				b.LoseWakeups(tc.key, tc.n) // of watches that are live
				for i, want := range tc.k {
					release("k")
					if got := awake(k); got != want {
						t.Errorf("release %d wakes: %v; want %v", i, got, want)
					}
				}
				release("j")
				if got := awake(j); got != tc.j {
					t.Errorf("a release of another key wakes: %v; want %v", got, tc.j)
				}
				b.Clear()
				release("k")
				if !awake(k) {
					t.Error("no wake-up came after Clear")
				}
			})
		})
	}
}

// Stop ends the goroutine (or the bubble would say so) and the inner watch once.
func TestWatchStop(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := &full{}
		_, stop, err := loccotest.Wrap(inner).Watch(ctx, "k")
		if err != nil {
			t.Fatalf("Watch = %v; want no error", err)
		}
		stop()
		stop()
		if got := inner.stopped(); got != 1 {
			t.Errorf("the backend's watch was stopped %d times; want once", got)
		}
	})
}

// The context of Watch bounds its set-up only.
func TestWatchOutlivesItsContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		k, _, release := watching(t, ctx, loccotest.Wrap(&full{}))
		cancel()
		release("k")
		if !awake(k) {
			t.Error("no wake-up came after the context of Watch had ended")
		}
	})
}

// A watch that the backend could not set up is not stopped, because it is not
// there.
func TestWatchFailsBelow(t *testing.T) {
	t.Parallel()
	for name, effect := range map[string]loccotest.Effect{
		"None":       {},
		"FailAnswer": loccotest.FailAnswer(errPassing),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &full{}
			inner.err = errDriver
			b := loccotest.Wrap(inner)
			inject(b, loccotest.Watch, effect)
			if wake, stop, err := b.Watch(t.Context(), "k"); wake != nil || stop != nil || err == nil {
				t.Errorf("Watch = %v, %t, %v; want an error only", wake, stop != nil, err)
			}
		})
	}
}

// A backend that closes the channel of a watch breaks the contract, and is shown
// as it is.
func TestWatchOfABrokenBackend(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, ctx context.Context) {
		wake, stop, err := loccotest.Wrap(&closer{}).Watch(ctx, "k")
		if err != nil {
			t.Fatalf("Watch = %v; want no error", err)
		}
		defer stop()
		if _, ok := <-wake; ok {
			t.Error("a wake-up came from a channel that is closed")
		}
	})
}

type closer struct{ plain }

func (*closer) Watch(context.Context, string) (<-chan struct{}, func(), error) {
	wake := make(chan struct{})
	close(wake)
	return wake, func() {}, nil
}
