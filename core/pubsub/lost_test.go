package pubsub_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locco-go/locco/core/pubsub"
)

// slow is a connection whose calls of Subscribe do something of their own.
type slow struct {
	*conn
	subscribe func(ctx context.Context, c *conn, topics []string) (map[string]error, error)
}

func (s slow) Subscribe(ctx context.Context, topics []string) (map[string]error, error) {
	return s.subscribe(ctx, s.conn, topics)
}

// slowly runs a test of a hub on such connections.
func slowly(t *testing.T, subscribe func(ctx context.Context, c *conn, topics []string) (map[string]error, error), test func(t *testing.T, n *network, h *pubsub.Hub)) {
	t.Helper()
	bubble(t, func(t *testing.T, n *network, _ *pubsub.Hub) {
		test(t, n, pubsub.New(func(ctx context.Context, events pubsub.Events) (pubsub.Conn, error) {
			c, err := n.open(ctx, events)
			if err != nil {
				return nil, err
			}
			return slow{c.(*conn), subscribe}, nil
		}))
	})
}

// spec 8.6: a watch is live when Watch returns, and not a moment earlier.
func TestWatchReturnsWhenSubscribed(t *testing.T) {
	t.Parallel()
	slowly(t, func(ctx context.Context, c *conn, topics []string) (map[string]error, error) {
		time.Sleep(3 * time.Second)
		return c.Subscribe(ctx, topics)
	}, func(t *testing.T, n *network, h *pubsub.Hub) {
		start := time.Now()
		wake, _ := watch(t, h, "a")
		n.publish("a")
		if took, x := time.Since(start), woken(wake); took != 3*time.Second || x != 1 {
			t.Errorf("Watch took %v, then %d wake-ups; want 3s, 1", took, x)
		}
		start = time.Now()
		watch(t, h, "a")
		if took := time.Since(start); took != 0 {
			t.Errorf("Watch of what is subscribed took %v; want no time", took)
		}
	})
}

// TestLaterGivenUp has a topic that nobody waits for any more when it can be had: what was
// begun for it is ended, though others keep the connection.
func TestLaterGivenUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		watch(t, h, "b")
		n.do(func() { n.refuse["a"] = pubsub.ErrLater })
		ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
		defer cancel()
		if _, _, err := h.Watch(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch = %v; want %v", err, context.DeadlineExceeded)
		}
		time.Sleep(time.Second)
		sent := n.sent()
		if last := sent[len(sent)-1]; last != "-a" || h.Topics() != 1 {
			t.Errorf("sent %q, %d topics; want the end of a, and one topic", sent, h.Topics())
		}
	})
}

// TestWatchGivenUp has a context that ends while the subscription is made: the watch
// fails at once, and what it began ends like any subscription that nobody needs.
func TestWatchGivenUp(t *testing.T) {
	t.Parallel()
	slowly(t, func(ctx context.Context, c *conn, topics []string) (map[string]error, error) {
		time.Sleep(3 * time.Second)
		return c.Subscribe(ctx, topics)
	}, func(t *testing.T, n *network, h *pubsub.Hub) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := h.Watch(ctx, "a")
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("Watch = %v after %v; want %v after 1s", err, took, context.DeadlineExceeded)
		}
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		n.do(func() {
			if !n.current.closed || h.Topics() != 0 {
				t.Errorf("%d topics are left, and the connection is closed: %v; want none, true", h.Topics(), n.current.closed)
			}
		})
	})
}

// spec 8.6: a connection that breaks while a subscription is made fails the watch that
// waits for it, and is set up again for those who had one.
func TestBrokenWhileSubscribing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a, _ := watch(t, h, "a")
		n.do(func() { n.refuse["b"] = pubsub.ErrLater })
		failed := make(chan error, 1)
		go func() {
			_, _, err := h.Watch(t.Context(), "b")
			failed <- err
		}()
		time.Sleep(time.Second)
		n.cut()
		if err := <-failed; !errors.Is(err, errBroken) {
			t.Errorf("Watch = %v; want %v", err, errBroken)
		}
		time.Sleep(time.Second)
		if x := woken(a); x != 1 || n.opens() != 2 {
			t.Errorf("%d wake-ups, %d connections; want 1, 2", x, n.opens())
		}
	})
}

// spec 8.6: a subscription that ends while it is made is not live. It is made again soon,
// and then each watcher has been woken once; who sets up a watch waits for it.
func TestLostWhileSubscribing(t *testing.T) {
	t.Parallel()
	lose := false
	slowly(t, func(ctx context.Context, c *conn, topics []string) (map[string]error, error) {
		refused, err := c.Subscribe(ctx, topics)
		c.network.mu.Lock()
		now := lose
		lose = false
		c.network.mu.Unlock()
		if now {
			c.events.Lost("a")
		}
		return refused, err
	}, func(t *testing.T, n *network, h *pubsub.Hub) {
		start := time.Now()
		lose = true
		a, _ := watch(t, h, "a")
		if took := time.Since(start); took != 50*time.Millisecond || woken(a) != 0 {
			t.Errorf("Watch took %v; want 50ms, the next try, and no wake-up", took)
		}
		time.Sleep(time.Minute)
		n.do(func() { lose = true })
		n.current.events.Lost("a")
		time.Sleep(time.Second)
		if x := woken(a); x != 1 || len(n.sent()) != 4 {
			t.Errorf("%d wake-ups after the subscriptions %v; want 1 after 4", x, n.sent())
		}
	})
}

// spec 8.6: a subscription that ends whenever it has been made is made less and less
// often, and its watchers are not woken without end.
func TestLostAgainAndAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a, _ := watch(t, h, "a")
		b, _ := watch(t, h, "b")
		before := len(n.sent())
		end := time.Now().Add(time.Minute)
		for time.Now().Before(end) { // as soon as it is there
			<-time.After(time.Millisecond)
			n.current.events.Lost("a")
		}
		if tries := len(n.sent()) - before; tries < 20 || tries > 60 {
			t.Errorf("%d subscriptions within a minute; want one every two seconds", tries)
		}
		time.Sleep(3 * time.Second)
		if x, y := woken(a), woken(b); x != 1 || y != 0 || n.opens() != 1 {
			t.Errorf("wake-ups = %d, %d, connections %d; want 1, 0, 1", x, y, n.opens())
		}
		time.Sleep(time.Minute)
		before = len(n.sent())
		n.current.events.Lost("a")
		if x, tries := woken(a), len(n.sent())-before; x != 1 || tries != 1 {
			t.Errorf("%d wake-ups, %d subscriptions; want one at once, since the last was a good one", x, tries)
		}
	})
}

// TestOldConnectionsReports has a connection that is gone and tells of it late.
func TestOldConnectionsReports(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a, _ := watch(t, h, "a")
		old := n.current.events
		n.cut()
		time.Sleep(time.Second)
		before := len(n.sent())
		if x := woken(a); x != 1 {
			t.Errorf("%d wake-ups after the connection broke; want 1", x)
		}
		old.Lost("a")
		if x := woken(a); x != 0 || len(n.sent()) != before {
			t.Errorf("%d wake-ups, sent %v; want none, and nothing after the first %d", x, n.sent(), before)
		}
	})
}

// TestHubEndsInBackoff has watchers that leave while there is no connection: the attempts
// end with the last.
func TestHubEndsInBackoff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		_, stop := watch(t, h, "a")
		n.do(func() { n.down = true })
		n.cut()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		stop()
		synctest.Wait()
		before := n.opens()
		time.Sleep(time.Minute)
		if tries := n.opens() - before; tries != 0 || h.Topics() != 0 {
			t.Errorf("%d tries to connect for nobody, %d topics; want none", tries, h.Topics())
		}
		n.do(func() { n.down = false })
		watch(t, h, "a")
	})
}

// TestRefusedTopicHarmsNoOther has two topics in one call, of which one is refused.
func TestRefusedTopicHarmsNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		n.do(func() { n.refuse["x"], n.refuse["y"] = errRefused, pubsub.ErrLater })
		time.AfterFunc(time.Second, func() { n.do(func() { delete(n.refuse, "y") }) })
		later := make(chan error, 1)
		go func() {
			_, stop, err := h.Watch(t.Context(), "y")
			if err == nil {
				defer stop()
			}
			later <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if _, _, err := h.Watch(t.Context(), "x"); !errors.Is(err, errRefused) {
			t.Errorf("Watch of what is refused = %v; want %v", err, errRefused)
		}
		if err := <-later; err != nil {
			t.Errorf("Watch of what can be had later = %v; want none", err)
		}
	})
}
