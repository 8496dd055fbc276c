package contract

import (
	"context"
	"sync"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var watcherCases = []testCase{
	{"Watcher/WakesOnRelease", watcher, testWatchRelease},
	{"Watcher/WakesOnReleaseByPeer", watcher, testWatchPeer},
	{"Watcher/FreeKeyCanBeWatched", watcher, testWatchFree},
	{"Watcher/WakesAgainAndAgain", watcher, testWatchRepeated},
	{"Watcher/WakesAfterTransfer", watcher | transfer, testWatchTransfer},
	{"Watcher/WakesOnReleaseOfASet", watcher | manyAcquire, testWatchSet},
	{"Watcher/SetUpContextMayEnd", watcher, testWatchContext},
	{"Watcher/EndedContextDoesNotBlock", watcher, testWatchEndedContext},
	{"Watcher/ChannelHasRoomForOne", watcher, testWatchRoom},
	{"Watcher/ReleaseNeverWaitsForReceiver", watcher, testWatchNoReceiver},
	{"Watcher/StopTwice", watcher, testWatchStopTwice},
	{"Watcher/StopWhileWakeIsPending", watcher, testWatchStopPending},
	{"Watcher/ChannelIsNeverClosed", watcher, testWatchNotClosed},
	{"Watcher/StoppedWatchIsSilent", watcher, testWatchSilent},
}

// watch is one live watch of a key.
type watch struct {
	c    *client
	key  string
	wake <-chan struct{}
	stop func()
}

// watch begins a watch that ends with the case at the latest.
func (c *client) watch(key string) *watch {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	return c.watchContext(ctx, key)
}

func (c *client) watchContext(ctx context.Context, key string) *watch {
	c.t.Helper()
	wake, stop, err := as[locco.Watcher](c).Watch(ctx, key)
	if err != nil {
		c.t.Fatalf("Watch(%s) error = %v; want a watch", show(key), err)
	}
	if wake == nil || stop == nil {
		c.t.Fatalf("Watch(%s) = channel nil %v, stop nil %v, <nil>; want both (%s)", show(key), wake == nil, stop == nil, ruleWake)
	}
	c.t.Cleanup(stop)
	return &watch{c: c, key: key, wake: wake, stop: stop}
}

// drain takes wake-ups that came before what a case is about: one too many is
// harmless.
func (w *watch) drain() {
	for {
		select {
		case _, open := <-w.wake:
			if !open {
				return // wantWake says so
			}
		default:
			return
		}
	}
}

// wantWake checks that a wake-up comes soon.
func (w *watch) wantWake(after, rule string) bool {
	w.c.t.Helper()
	timeout := time.NewTimer(w.c.patience)
	defer timeout.Stop()
	select {
	case _, open := <-w.wake:
		if !open {
			w.c.t.Errorf("Watch(%s): the channel was closed (%s)", show(w.key), ruleOpen)
		}
		return open
	case <-timeout.C:
		w.c.t.Errorf("Watch(%s): no wake-up within %v after %s; want one (%s)", show(w.key), w.c.patience, after, rule)
		return false
	}
}

// pending waits until a wake-up lies in the channel and leaves it there.
func (w *watch) pending() bool {
	return w.c.eventually(func() bool { return len(w.wake) > 0 })
}

func testWatchRelease(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	w := s.watch(h.Key)
	w.drain()
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	if w.wantWake("release", ruleWake) {
		s.wantFree(h.Key, ruleWake) // woken means that the next look finds it free
	}
}

func testWatchPeer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	w := s.watch(h.Key)
	w.drain()
	s.peer.wantRelease("token granted through another client", h.Key, h.Token, true, ruleStore)
	w.wantWake("release through another client", ruleWake)
}

func testWatchFree(t *testing.T, s *subject) {
	key := s.key()
	w := s.watch(key)
	h := s.take(key, long)
	w.drain()
	s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	w.wantWake("release of a key that was free when the watch began", ruleWake)
}

func testWatchRepeated(t *testing.T, s *subject) {
	key := s.key()
	w := s.watch(key)
	for range rounds(20) {
		h := s.take(key, long)
		w.drain()
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
		if !w.wantWake("one release of several", ruleWake) {
			return
		}
	}
	for range 3 { // and with a new watch each time
		w.stop()
		w = s.watch(key)
		h := s.take(key, long)
		w.drain()
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
		w.wantWake("release, with a watch that follows a stopped one", ruleWake)
	}
}

func testWatchTransfer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	w := s.watch(h.Key)
	to := newLease(h.Key, long)
	s.wantTransfer("holder's token", h.Token, to, true, ruleTransfer)
	w.drain()
	s.wantRelease("token that a transfer gave", h.Key, to.Token, true, ruleTransfer)
	w.wantWake("release by a token that a transfer gave", ruleWake)
}

func testWatchSet(t *testing.T, s *subject) {
	holds := s.takeMany(s.keys(3), long, false)
	watches := make([]*watch, len(holds))
	for i, h := range holds {
		watches[i] = s.watch(h.Key)
		watches[i].drain()
	}
	for _, h := range holds {
		s.wantRelease("holder's token of a set", h.Key, h.Token, true, ruleAllOrNone)
	}
	for _, w := range watches {
		w.wantWake("release of a key of a set", ruleWake)
	}
}

func testWatchContext(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	ctx, cancel := s.context()
	w := s.watchContext(ctx, h.Key)
	cancel()
	s.wait(s.step)
	w.drain()
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	w.wantWake("release, with the context of the set-up canceled", ruleSetUp)
}

func testWatchEndedContext(t *testing.T, s *subject) {
	ctx, cancel := s.context()
	cancel()
	s.wantReturn("Watch(ended context)", s.patience, func() {
		if _, stop, err := as[locco.Watcher](s.client).Watch(ctx, s.key()); err == nil {
			stop() // a watch that needed no set-up
		}
	}, ruleContext)
}

func testWatchRoom(t *testing.T, s *subject) {
	w := s.watch(s.key())
	if cap(w.wake) < 1 {
		t.Errorf("Watch: the channel has room for %d wake-ups; want 1 (%s)", cap(w.wake), ruleRoom)
	}
}

// testWatchNoReceiver has watches of the key, and of others, that nobody reads.
func testWatchNoReceiver(t *testing.T, s *subject) {
	key := s.key()
	w := s.watch(key)
	for range 3 {
		s.watch(key)
		s.watch(s.key())
	}
	for range 5 {
		h := s.take(key, long)
		s.wantReturn("Release, with watches that nobody reads", s.patience, func() {
			if !s.tryRelease(key, h.Token) {
				t.Errorf("Release(holder's token) = false, <nil>; want true (%s)", ruleRelease)
			}
		}, ruleRoom)
	}
	w.wantWake("releases while nobody read", ruleRoom)
}

func testWatchStopTwice(t *testing.T, s *subject) {
	key := s.key()
	w := s.watch(key)
	w.stop()
	w.stop()
	// Had the second stop ended another watch of the key, it would be deaf now.
	other := s.watch(key)
	w.stop()
	h := s.take(key, long)
	other.drain()
	s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	other.wantWake("release, with another watch stopped three times", ruleStop)
	together(4, func(int) { other.stop() })
}

func testWatchStopPending(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	w := s.watch(h.Key)
	w.drain()
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	if !w.pending() {
		t.Errorf("Watch: no wake-up within %v after release; want one (%s)", s.patience, ruleWake)
	}
	s.wantReturn("stop, with a wake-up unread", s.patience, w.stop, ruleStop)
	next := s.take(h.Key, long)
	w = s.watch(h.Key)
	w.drain()
	s.wantRelease("holder's token", next.Key, next.Token, true, ruleRelease)
	w.wantWake("release, after a watch was stopped with its wake-up unread", ruleStop)
}

func testWatchNotClosed(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	w := s.watch(h.Key)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	w.stop()
	s.wait(s.step)
	for range 3 {
		select {
		case _, open := <-w.wake:
			if !open {
				t.Fatalf("Watch(%s): the channel was closed by stop (%s)", show(h.Key), ruleOpen)
			}
		default:
		}
	}
}

// testWatchSilent lets stop race with releases, so that the race detector and
// a panic can speak, and counts what arrives after stop and a pause.
func testWatchSilent(t *testing.T, s *subject) {
	key := s.key()
	var wg sync.WaitGroup
	for range 4 {
		w := s.watch(key)
		wg.Go(func() {
			s.wait(s.step)
			w.stop()
		})
	}
	for range rounds(20) {
		h := s.take(key, long)
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
		s.wait(s.step / 5)
	}
	wg.Wait()
	key = s.key()
	w := s.watch(key)
	w.stop()
	s.wait(s.step)
	w.drain()
	h := s.take(key, long)
	s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	s.wait(2 * s.step)
	if len(w.wake) > 0 {
		t.Errorf("Watch(%s): a wake-up came after stop; want none (%s)", show(key), ruleStop)
	}
}
