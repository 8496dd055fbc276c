package contract

import (
	"slices"
	"sync"
	"testing"

	locco "github.com/locco-go/locco/core"
)

// The cases of this file have several watches at a time.
var watchersCases = []testCase{
	{"Watchers/OneIsWoken", watcher, testWatchersOne},
	{"Watchers/EachInTurn", watcher, testWatchersInTurn},
	{"Watchers/StoppedOneDoesNotDeafenOthers", watcher, testWatchersStopped},
	{"Watchers/KeysAreIndependent", watcher, testWatchersKeys},
	{"Watchers/OfSeveralClients", watcher, testWatchersClients},
	{"Watchers/ComeAndGoConcurrently", watcher, testWatchersChurn},
	{"Watchers/UnreadWakeIsPassedOn", watcher | immediate, testWatchersUnread},
	{"Watchers/UnusedWakeIsPassedOn", watcher | immediate, testWatchersUnused},
	{"Watchers/ShorterLeaseWakes", watcher | immediate | left, testWatchersShorter},
}

// drainAll takes the wake-ups out of all watches.
func drainAll(watches []*watch) {
	for _, w := range watches {
		w.drain()
	}
}

// woken waits until a wake-up lies in one of the watches and returns its index,
// or -1. The wake-up stays where it is.
func (s *subject) woken(watches []*watch) int {
	at := -1
	s.eventually(func() bool {
		at = slices.IndexFunc(watches, func(w *watch) bool { return len(w.wake) > 0 })
		return at >= 0
	})
	return at
}

func testWatchersOne(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	var watches []*watch
	for range 5 {
		watches = append(watches, s.watch(h.Key))
	}
	drainAll(watches)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	if s.woken(watches) < 0 {
		t.Errorf("Watch: none of %d watches was woken within %v after release (%s)", len(watches), s.patience, ruleWake)
	}
}

// testWatchersInTurn lets every watcher in its turn take the key, as waiters
// do: the one that was woken takes it, stops its watch and releases.
func testWatchersInTurn(t *testing.T, s *subject) {
	key := s.key()
	h := s.take(key, long)
	var watches []*watch
	for range 5 {
		watches = append(watches, s.watch(key))
	}
	for len(watches) > 0 {
		drainAll(watches)
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
		at := s.woken(watches)
		if at < 0 {
			t.Fatalf("Watch: none of the %d watches left was woken within %v after release (%s)", len(watches), s.patience, ruleWake)
		}
		h = s.take(key, long)
		watches[at].stop()
		watches = slices.Delete(watches, at, at+1)
	}
}

func testWatchersStopped(t *testing.T, s *subject) {
	key := s.key()
	for _, stopped := range [][]int{{0}, {1}, {2}, {0, 1}, {0, 2}, {2, 1}} {
		h := s.take(key, long)
		watches := []*watch{s.watch(key), s.watch(key), s.watch(key)}
		for _, i := range stopped {
			watches[i].stop()
		}
		alive := slices.DeleteFunc(slices.Clone(watches), func(w *watch) bool {
			return slices.ContainsFunc(stopped, func(i int) bool { return watches[i] == w })
		})
		drainAll(alive)
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
		if s.woken(alive) < 0 {
			t.Errorf("Watch: 3 watches, %v of them stopped: no other was woken within %v after release (%s)",
				stopped, s.patience, ruleStop)
		}
		for _, w := range alive {
			w.stop()
		}
	}
}

func testWatchersKeys(t *testing.T, s *subject) {
	var holds []hold
	var watches []*watch
	for range 8 {
		h := s.take(s.key(), long)
		holds = append(holds, h)
		watches = append(watches, s.watch(h.Key))
	}
	drainAll(watches)
	for _, i := range []int{3, 0, 7, 5, 1, 2, 6, 4} {
		s.wantRelease("holder's token", holds[i].Key, holds[i].Token, true, ruleRelease)
		watches[i].wantWake("release of its key", ruleWake)
		watches[i].stop()
	}
}

func testWatchersClients(t *testing.T, s *subject) {
	key := s.key()
	for i := range 4 {
		h := s.either(i/2).take(key, long)
		watches := []*watch{s.watch(key), s.peer.watch(key)}
		drainAll(watches)
		s.either(i).wantRelease("holder's token", key, h.Token, true, ruleRelease)
		if s.woken(watches) < 0 {
			t.Errorf("Watch: none of 2 clients was woken within %v after release (%s)", s.patience, ruleWake)
		}
		for _, w := range watches {
			w.stop()
		}
	}
}

// testWatchersChurn has watches that come and go while the key is released, and
// one that stays to the end and must be woken then.
func testWatchersChurn(t *testing.T, s *subject) {
	as[locco.Watcher](s.client)
	as[locco.Watcher](s.peer)
	key := s.key()
	var wg sync.WaitGroup
	for i := range 6 {
		c := s.either(i)
		wg.Go(func() {
			for range rounds(20) {
				ctx, cancel := c.context()
				_, stop, err := c.b.(locco.Watcher).Watch(ctx, key)
				cancel()
				if err != nil {
					t.Errorf("Watch(%s) error = %v; want a watch", show(key), err)
					return
				}
				s.wait(s.step / 2)
				stop()
			}
		})
	}
	for range rounds(20) {
		h := s.take(key, long)
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
		s.wait(s.step / 2)
	}
	wg.Wait()
	w := s.watch(key)
	h := s.take(key, long)
	w.drain()
	s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	w.wantWake("release, after many watches came and went", ruleStop)
}

// testWatchersUnread stops the watch that was woken before its wake-up was
// read.
func testWatchersUnread(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	watches := []*watch{s.watch(h.Key), s.watch(h.Key), s.watch(h.Key)}
	drainAll(watches)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	for len(watches) > 0 {
		at := s.woken(watches)
		if at < 0 {
			t.Fatalf("Watch: the watch that was woken stopped, the key is free, and none of the other %d was woken (%s)",
				len(watches), ruleWakeLost)
		}
		watches[at].stop()
		watches = slices.Delete(watches, at, at+1)
	}
}

// testWatchersUnused has a waiter that was woken and then left without a look.
func testWatchersUnused(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	watches := []*watch{s.watch(h.Key), s.watch(h.Key), s.watch(h.Key)}
	drainAll(watches)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	for len(watches) > 0 {
		at := s.woken(watches)
		if at < 0 {
			t.Fatalf("Watch: the watch that was woken received and stopped, the key is free, and none of the other %d was woken (%s)",
				len(watches), ruleWakeLost)
		}
		watches[at].drain()
		watches[at].stop()
		watches = slices.Delete(watches, at, at+1)
	}
}

// testWatchersShorter has a waiter that was told of a long lease and would sleep
// until its end, were it not told that the lease now ends earlier.
func testWatchersShorter(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	w := s.watch(h.Key)
	s.wantLeft(h.Key, h.TTL, h.span)
	w.drain()
	s.wantExtend("holder's token, shorter TTL", h.with(long/2), true, ruleExtend)
	w.wantWake("an extension that lets the lease end earlier than a refusal told", ruleWakeLost)

	// The same by way of another holder: released and taken again at once.
	s.wantExtend("holder's token, longer TTL", h.with(2*long), true, ruleExtend)
	l := newLease(h.Key, long)
	l.WantLeft = true
	s.wantAcquire("held key, WantLeft", l, false, ruleExclusive)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	s.take(h.Key, long/2)
	w.wantWake("a next grant that ends earlier than a refusal told", ruleWakeLost)
}
