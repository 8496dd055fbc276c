package contract_test

import (
	"context"
	"slices"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

// watchDefects are about wake-ups.
var watchDefects = []defect{
	{
		name:     "ChannelHasNoRoom",
		caughtBy: []string{"Watcher/ChannelHasRoomForOne", "Watcher/WakesOnRelease"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w := &watching{wake: make(chan struct{})}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.waiting[key] = append(r.waiting[key], w)
			return w, func() { r.unwatch(key, w) }
		}),
	},
	{
		name:     "ReleaseWakesOwnClientOnly",
		caughtBy: []string{"Watcher/WakesOnReleaseByPeer", "Watchers/OfSeveralClients"},
		peer: func(r reference, _ *faulty) locco.Backend {
			return newFaulty(func(_ reference, f *faulty) {
				f.acquire, f.watch = r.Acquire, r.Watch
				f.release = silentRelease(r)
			})
		},
	},
	{
		name:     "FreeKeyIsNotWatched",
		caughtBy: []string{"Watcher/FreeKeyCanBeWatched"},
		seed: watch(func(r reference, ctx context.Context, key string) (*watching, func()) {
			r.mu.Lock()
			free := r.live(key) == nil
			r.mu.Unlock()
			if free {
				return &watching{wake: make(chan struct{}, 1)}, func() {}
			}
			return r.watching(key)
		}),
	},
	{
		name:     "WatchWakesOnce",
		caughtBy: []string{"Watcher/WakesAgainAndAgain"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				ours, err := r.Release(ctx, key, token)
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.waiting, key)
				return ours, err
			}
		},
	},
	{
		name:     "TransferForgetsTheWaiting",
		caughtBy: []string{"Watcher/WakesAfterTransfer"},
		seed: func(r reference, f *faulty) {
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				g, err := r.Transfer(ctx, from, to)
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.waiting, to.Key)
				return g, err
			}
		},
	},
	{
		name:     "KeysOfASetAreReleasedSilently",
		caughtBy: []string{"Watcher/WakesOnReleaseOfASet"},
		seed: func(r reference, f *faulty) {
			inSet := map[string]bool{}
			f.acquireMany = func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
				for _, l := range ls {
					inSet[l.Token] = true
				}
				return r.AcquireMany(ctx, ls)
			}
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				if inSet[token] {
					return silentRelease(r)(ctx, key, token)
				}
				return r.Release(ctx, key, token)
			}
		},
	},
	{
		name:     "WatchEndsWithItsContext",
		caughtBy: []string{"Watcher/SetUpContextMayEnd"},
		seed: watch(func(r reference, ctx context.Context, key string) (*watching, func()) {
			w, stop := r.watching(key)
			context.AfterFunc(ctx, stop)
			return w, stop
		}),
	},
	{
		name:     "WatchWithAnEndedContextBlocks",
		caughtBy: []string{"Watcher/EndedContextDoesNotBlock"},
		alone:    true,
		seed: watch(func(r reference, ctx context.Context, key string) (*watching, func()) {
			if ctx.Err() != nil {
				time.Sleep(time.Hour)
			}
			return r.watching(key)
		}),
	},
	{
		name:     "ReleaseWaitsForTheReceiver",
		caughtBy: []string{"Watcher/ReleaseNeverWaitsForReceiver"},
		alone:    true,
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				ours, err := silentRelease(r)(ctx, key, token)
				r.mu.Lock()
				queue := slices.Clone(r.waiting[key])
				r.mu.Unlock()
				for _, w := range queue {
					select {
					case w.wake <- struct{}{}:
					case <-time.After(time.Hour):
					}
				}
				return ours, err
			}
		},
	},
	{
		name:     "SecondStopEndsAnotherWatch",
		caughtBy: []string{"Watcher/StopTwice"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, _ := r.watching(key)
			return w, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				if queue := r.waiting[key]; len(queue) > 0 {
					r.waiting[key] = queue[1:]
				}
			}
		}),
	},
	{
		name:     "StopWaitsForTheReceiver",
		caughtBy: []string{"Watcher/StopWhileWakeIsPending"},
		alone:    true,
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, stop := r.watching(key)
			return w, func() {
				stop()
				select {
				case w.wake <- struct{}{}:
					<-w.wake
				case <-time.After(time.Hour):
				}
			}
		}),
	},
	{
		name:     "StopClosesTheChannel",
		caughtBy: []string{"Watcher/ChannelIsNeverClosed"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, stop := r.watching(key)
			return w, sync.OnceFunc(func() {
				stop()
				close(w.wake)
			})
		}),
	},
	{
		name:     "StopDoesNothing",
		caughtBy: []string{"Watcher/StoppedWatchIsSilent", "Watchers/EachInTurn", "Watchers/StoppedOneDoesNotDeafenOthers"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, _ := r.watching(key)
			return w, func() {}
		}),
	},
	{
		name:     "StopEndsAllWatchesOfTheKey",
		caughtBy: []string{"Watchers/StoppedOneDoesNotDeafenOthers", "Watchers/EachInTurn"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, _ := r.watching(key)
			return w, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.waiting, key)
			}
		}),
	},
	{
		name:     "TwoWatchesOfAKeyCancelOut",
		caughtBy: []string{"Watchers/OneIsWoken"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				r.mu.Lock()
				alone := len(r.waiting[key]) < 2
				r.mu.Unlock()
				if alone {
					return r.Release(ctx, key, token)
				}
				return silentRelease(r)(ctx, key, token)
			}
		},
	},
	{
		name:     "OneWatchAClient",
		caughtBy: []string{"Watchers/KeysAreIndependent"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			r.mu.Lock()
			clear(r.waiting)
			r.mu.Unlock()
			return r.watching(key)
		}),
	},
	{
		name:     "WatchesAreCountedWithoutAMutex",
		caughtBy: []string{"Watchers/ComeAndGoConcurrently"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w := &watching{wake: make(chan struct{}, 1)}
			change := func(to func(queue []*watching) []*watching) {
				r.mu.Lock()
				queue := to(slices.Clone(r.waiting[key]))
				r.mu.Unlock()
				pause()
				r.mu.Lock()
				defer r.mu.Unlock()
				r.waiting[key] = queue
			}
			change(func(queue []*watching) []*watching { return append(queue, w) })
			return w, func() {
				change(func(queue []*watching) []*watching {
					return slices.DeleteFunc(queue, func(other *watching) bool { return other == w })
				})
			}
		}),
	},
	{
		name:     "StopKeepsAnUnreadWake",
		caughtBy: []string{"Watchers/UnreadWakeIsPassedOn", "Watchers/UnusedWakeIsPassedOn"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, _ := r.watching(key)
			return w, func() { r.remove(key, w) }
		}),
	},
	{
		name:     "StopPassesOnUnreadWakesOnly",
		caughtBy: []string{"Watchers/UnusedWakeIsPassedOn"},
		seed: watch(func(r reference, _ context.Context, key string) (*watching, func()) {
			w, _ := r.watching(key)
			return w, func() {
				r.remove(key, w)
				r.mu.Lock()
				defer r.mu.Unlock()
				if len(w.wake) > 0 {
					r.signal(key)
				}
			}
		}),
	},
	{
		name:     "ShorterLeaseIsNotTold",
		caughtBy: []string{"Watchers/ShorterLeaseWakes"},
		seed:     extendTo(func(_ time.Time, ttl time.Duration) time.Time { return time.Now().Add(ttl) }),
	},
}

// watch seeds a Watch of its own.
func watch(begin func(r reference, ctx context.Context, key string) (*watching, func())) func(reference, *faulty) {
	return func(r reference, f *faulty) {
		f.watch = func(ctx context.Context, key string) (<-chan struct{}, func(), error) {
			w, stop := begin(r, ctx, key)
			return w.wake, stop, nil
		}
	}
}

// watching is Watch without a context and with the channel's other end.
func (s *store) watching(key string) (*watching, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watching{wake: make(chan struct{}, 1)}
	s.waiting[key] = append(s.waiting[key], w)
	return w, func() { s.unwatch(key, w) }
}

// remove is unwatch without passing anything on.
func (s *store) remove(key string, w *watching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[key] = slices.DeleteFunc(s.waiting[key], func(other *watching) bool { return other == w })
}

// silentRelease is a Release that wakes nobody.
func silentRelease(r reference) func(ctx context.Context, key, token string) (bool, error) {
	return func(ctx context.Context, key, token string) (bool, error) {
		return do(ctx, r.store, func() bool {
			held := r.heldBy(key, token) != nil
			if held {
				delete(r.leases, key)
			}
			return held
		})
	}
}
