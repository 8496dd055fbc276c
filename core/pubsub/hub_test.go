package pubsub_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locco-go/locco/core/pubsub"
)

var (
	errBroken  = errors.New("the connection broke")
	errRefused = errors.New("not allowed")
)

// network makes connections, and breaks them.
type network struct {
	mu      sync.Mutex // guards what follows
	opened  []time.Time
	calls   []string // what was sent on them
	down    bool
	refuse  map[string]error
	current *conn
}

func (n *network) open(_ context.Context, events pubsub.Events) (pubsub.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opened = append(n.opened, time.Now())
	if n.down {
		return nil, errBroken
	}
	n.current = &conn{network: n, events: events, broken: make(chan struct{}), topics: map[string]bool{}}
	return n.current, nil
}

// conn is a connection of a network.
type conn struct {
	network *network
	events  pubsub.Events
	broken  chan struct{}
	closed  bool
	topics  map[string]bool
}

func (c *conn) Subscribe(_ context.Context, topics []string) (map[string]error, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	slices.Sort(topics)
	refused := map[string]error{}
	for _, topic := range topics {
		c.network.calls = append(c.network.calls, "+"+topic)
		if err := c.network.refuse[topic]; err != nil {
			refused[topic] = err
			continue
		}
		c.topics[topic] = true
	}
	select {
	case <-c.broken:
		return nil, errBroken
	default:
		return refused, nil
	}
}

func (c *conn) Unsubscribe(_ context.Context, topics []string) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	for _, topic := range topics {
		c.network.calls = append(c.network.calls, "-"+topic)
		delete(c.topics, topic)
	}
	return nil
}

func (c *conn) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.broken:
		return errBroken
	}
}

func (c *conn) Close() {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.closed = true
}

// do changes the network.
func (n *network) do(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// publish sends a message to who is subscribed.
func (n *network) publish(topic string) {
	n.mu.Lock()
	c := n.current
	subscribed := c != nil && c.topics[topic]
	n.mu.Unlock()
	if subscribed {
		c.events.Message(topic)
	}
}

// cut ends the connection.
func (n *network) cut() { n.do(func() { close(n.current.broken) }) }

func (n *network) sent() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

func (n *network) opens() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.opened)
}

// bubble runs a test in fake time, which also fails it if the hub's goroutine stays.
func bubble(t *testing.T, test func(t *testing.T, n *network, h *pubsub.Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(5 * time.Second) }) // what lingers ends, and nothing else is left
		n := &network{refuse: map[string]error{}}
		test(t, n, pubsub.New(n.open))
	})
}

func watch(t *testing.T, h *pubsub.Hub, topic string) (<-chan struct{}, func()) {
	t.Helper()
	wake, stop, err := h.Watch(t.Context(), topic)
	if err != nil {
		t.Fatalf("Watch(%s) = %v; want nil", topic, err)
	}
	t.Cleanup(stop)
	return wake, stop
}

// woken tells how many wake-ups there are, when everything has come to rest.
func woken(wake <-chan struct{}) int {
	synctest.Wait()
	n := 0
	for {
		select {
		case <-wake:
			n++
		default:
			return n
		}
	}
}

// spec 8.6: all watches share a connection; a message wakes everybody who watches its
// topic, and nobody else.
func TestMessagesReachTheirWatchers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a1, _ := watch(t, h, "a")
		a2, _ := watch(t, h, "a")
		b, _ := watch(t, h, "b")
		n.publish("a")
		n.publish("a") // there is room for one
		if x, y, z := woken(a1), woken(a2), woken(b); x != 1 || y != 1 || z != 0 {
			t.Errorf("wake-ups = %d, %d, %d; want 1, 1, 0", x, y, z)
		}
		n.publish("b")
		if x, z := woken(a1), woken(b); x != 0 || z != 1 {
			t.Errorf("wake-ups = %d, %d; want 0, 1", x, z)
		}
		if got, want := n.sent(), []string{"+a", "+b"}; !slices.Equal(got, want) || n.opens() != 1 || h.Topics() != 2 {
			t.Errorf("sent %v on %d connections, %d topics; want %v on one, 2", got, n.opens(), h.Topics(), want)
		}
	})
}

// spec 8.6: what was given up stays subscribed for a second, so that those who come and
// go cost nothing; then it ends, and the connection with the last.
func TestSubscriptionsLinger(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		wake, stop := watch(t, h, "a")
		watch(t, h, "b")
		stop()
		stop() // does no harm
		n.publish("a")
		if got := woken(wake); got != 0 {
			t.Errorf("%d wake-ups after stop; want none", got)
		}
		time.Sleep(900 * time.Millisecond)
		_, stop = watch(t, h, "a")
		time.Sleep(2 * time.Second)
		if got, want := n.sent(), []string{"+a", "+b"}; !slices.Equal(got, want) {
			t.Errorf("sent %v; want %v", got, want)
		}
		stop()
		time.Sleep(1100 * time.Millisecond)
		if got, want := n.sent(), []string{"+a", "+b", "-a"}; !slices.Equal(got, want) || h.Topics() != 1 {
			t.Errorf("sent %v, %d topics; want %v, 1", got, h.Topics(), want)
		}
	})
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		_, stop := watch(t, h, "a")
		stop()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		n.do(func() {
			if !n.current.closed {
				t.Error("the connection is open though nobody watches")
			}
		})
		watch(t, h, "a")
		if n.opens() != 2 {
			t.Errorf("%d connections; want a second one for who comes later", n.opens())
		}
	})
}

// spec 8.6: a connection that broke is opened again, less and less often while that
// fails, and every watcher is then woken once. Who comes meanwhile learns of it.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a, _ := watch(t, h, "a")
		b, _ := watch(t, h, "b")
		time.Sleep(time.Minute)
		n.cut()
		time.Sleep(time.Second)
		if x, y := woken(a), woken(b); x != 1 || y != 1 || n.opens() != 2 {
			t.Errorf("wake-ups = %d, %d, connections %d; want 1, 1, 2", x, y, n.opens())
		}
		n.publish("a")
		if x := woken(a); x != 1 {
			t.Errorf("%d wake-ups on the new connection; want 1", x)
		}

		n.do(func() { n.down = true })
		before := n.opens()
		n.cut()
		time.Sleep(time.Minute)
		// 50 ms and twice that each time, up to 2 s, each less up to a half.
		if tries := n.opens() - before; tries < 25 || tries > 70 {
			t.Errorf("%d tries to connect within a minute; want one a second or two", tries)
		}
		if _, _, err := h.Watch(t.Context(), "c"); !errors.Is(err, errBroken) {
			t.Errorf("Watch while there is no connection = %v; want %v", err, errBroken)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := h.Watch(ctx, "d"); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errBroken) {
			t.Errorf("Watch that is given up = %v; want %v", err, context.DeadlineExceeded)
		}
		if x := woken(a); x != 0 {
			t.Errorf("%d wake-ups while there is no connection; want none", x)
		}
		n.do(func() { n.down = false })
		time.Sleep(3 * time.Second)
		if x, y := woken(a), woken(b); x != 1 || y != 1 {
			t.Errorf("wake-ups = %d, %d; want 1, 1", x, y)
		}
	})
}

// TestRefusedTopic has a topic that may not be had, which is its own problem.
func TestRefusedTopic(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a, _ := watch(t, h, "a")
		n.do(func() { n.refuse["x"] = errRefused })
		if _, _, err := h.Watch(t.Context(), "x"); !errors.Is(err, errRefused) {
			t.Errorf("Watch = %v; want %v", err, errRefused)
		}
		n.publish("a")
		if x := woken(a); x != 1 || n.opens() != 1 {
			t.Errorf("%d wake-ups, %d connections; want 1, 1", x, n.opens())
		}
		time.Sleep(time.Minute)
		if got, want := n.sent(), []string{"+a", "+x"}; !slices.Equal(got, want) {
			t.Errorf("sent %v; want %v: nobody watches what was refused", got, want)
		}
		n.do(func() { delete(n.refuse, "x") })
		watch(t, h, "x")
	})
}

// TestLater has a topic that can be had in a moment: the set-up waits for it.
func TestLater(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		n.do(func() { n.refuse["a"] = pubsub.ErrLater })
		start := time.Now()
		time.AfterFunc(220*time.Millisecond, func() { n.do(func() { delete(n.refuse, "a") }) })
		watch(t, h, "a")
		if took := time.Since(start); took != 250*time.Millisecond {
			t.Errorf("Watch took %v; want 250ms, the next try", took)
		}
	})
}

// spec 8.6: a subscription that ended by itself is made again, at once, and as long as
// it is refused with pauses; its watchers are woken once then.
func TestLostSubscription(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		a, _ := watch(t, h, "a")
		b, _ := watch(t, h, "b")
		n.current.events.Lost("a")
		if x, y := woken(a), woken(b); x != 1 || y != 0 {
			t.Errorf("wake-ups = %d, %d; want 1, 0", x, y)
		}
		n.do(func() { n.refuse["a"] = errRefused })
		before := len(n.sent())
		n.current.events.Lost("a")
		time.Sleep(time.Minute)
		if tries := len(n.sent()) - before; tries < 20 || tries > 60 {
			t.Errorf("%d tries within a minute; want one every two seconds", tries)
		}
		if x := woken(a); x != 0 {
			t.Errorf("%d wake-ups without a subscription; want none", x)
		}
		n.do(func() { delete(n.refuse, "a") })
		time.Sleep(3 * time.Second)
		if x, y := woken(a), woken(b); x != 1 || y != 0 || n.opens() != 1 {
			t.Errorf("wake-ups = %d, %d, connections %d; want 1, 0, 1", x, y, n.opens())
		}
		n.current.events.Lost("nobody's") // says nothing
	})
}

// TestEndedContext watches nothing.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := h.Watch(ctx, "a"); !errors.Is(err, context.Canceled) || n.opens() != 0 {
			t.Errorf("Watch = %v with %d connections; want %v and none", err, n.opens(), context.Canceled)
		}
	})
}

// TestHubConcurrentSafe has many who come and go while connections break.
func TestHubConcurrentSafe(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, n *network, h *pubsub.Hub) {
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for j := range 20 {
					topic := string(rune('a' + (i+j)%7))
					wake, stop, err := h.Watch(t.Context(), topic)
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					select {
					case <-wake:
					case <-time.After(time.Duration(i*j) * time.Millisecond):
					}
					stop()
				}
			})
		}
		for i := range 20 {
			time.Sleep(100 * time.Millisecond)
			n.publish(string(rune('a' + i%7)))
			if i%5 == 4 {
				n.do(func() {
					select {
					case <-n.current.broken:
					default:
						close(n.current.broken)
					}
				})
			}
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if h.Topics() != 0 {
			t.Errorf("%d topics are left; want none", h.Topics())
		}
	})
}
