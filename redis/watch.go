package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// Watch implements [locco.Watcher]. All watches of a Backend share one connection of
// their own, opened at the first and closed a second after the last; a connection
// that broke is opened again in the background, after which every watcher is woken
// once. On a Cluster, and with [WithoutWakeUps], it answers [errors.ErrUnsupported].
func (b *Backend) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	switch {
	case b.publish == "":
		return nil, nil, errors.ErrUnsupported
	case b.muted.Load():
		return nil, nil, &locco.ValidationError{Field: "redis user", Value: "ACL", Rule: "must be allowed to publish; " + needs}
	}
	return b.hub.watch(ctx, protocol.Channel(key))
}

const (
	// linger is how long a subscription stays when nobody needs it any more, so that
	// waiters that come and go cost no command each.
	linger = time.Second

	// subscribeTimeout bounds a command of the hub.
	subscribeTimeout = 5 * time.Second

	// The waits between two attempts to connect.
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// hub shares one subscription connection among watchers. Its goroutine runs as long
// as somebody watches, and a little longer.
type hub struct {
	client rueidis.Client
	dirty  chan struct{} // topics have changed

	mu      sync.Mutex // guards what follows, and what is in the topics
	topics  map[string]*topic
	running bool
}

// topic is a channel that is subscribed, or is to be.
type topic struct {
	watchers []*watcher
	live     bool      // subscribed on the present connection
	idle     time.Time // since when nobody watches
}

type watcher struct {
	wake  chan struct{} // room for one
	ready chan error    // room for one: the outcome of the set-up
	set   bool          // the set-up is over
}

func (w *watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func newHub(client rueidis.Client) *hub {
	return &hub{client: client, dirty: make(chan struct{}, 1), topics: map[string]*topic{}}
}

func (h *hub) watch(ctx context.Context, channel string) (wake <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &watcher{wake: make(chan struct{}, 1), ready: make(chan error, 1)}
	h.mu.Lock()
	t := h.topics[channel]
	if t == nil {
		t = &topic{}
		h.topics[channel] = t
	}
	t.watchers = append(t.watchers, w)
	if w.set = t.live; w.set {
		w.ready <- nil
	}
	if !h.running {
		h.running = true
		go h.run()
	}
	h.mu.Unlock()
	h.changed()
	stop = func() { h.stop(t, w) }
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return w.wake, stop, nil
}

func (h *hub) stop(t *topic, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.Index(t.watchers, w)
	if at < 0 {
		return
	}
	t.watchers = slices.Delete(t.watchers, at, at+1)
	if len(t.watchers) == 0 {
		t.idle = time.Now()
		h.changed()
	}
}

func (h *hub) changed() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

// message wakes all who watch the channel.
func (h *hub) message(m rueidis.PubSubMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[m.Channel]; t != nil {
		for _, w := range t.watchers {
			w.notify()
		}
	}
}

// run keeps a connection open while it is needed.
func (h *hub) run() {
	backoff := firstBackoff
	for {
		began := time.Now()
		err := h.session()
		if err == nil {
			h.mu.Lock()
			if len(h.topics) == 0 {
				h.running = false
				h.mu.Unlock()
				return
			}
			h.mu.Unlock()
			continue
		}
		if !h.broke(err) {
			return
		}
		if time.Since(began) > maxBackoff {
			backoff = firstBackoff
		}
		if !h.pause(backoff/2 + rand.N(backoff)/2) {
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// broke tells those who set up a watch that it failed. It reports whether somebody
// still watches.
func (h *hub) broke(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.live = false
		t.fail(err)
	}
	return h.needed()
}

// fail ends the set-ups of t. It is called with the mutex.
func (t *topic) fail(err error) {
	t.watchers = slices.DeleteFunc(t.watchers, func(w *watcher) bool {
		if w.set {
			return false
		}
		w.set = true
		w.ready <- err
		return true
	})
}

// needed forgets idle topics of a broken connection and ends the hub if none is
// left. It is called with the mutex.
func (h *hub) needed() bool {
	for channel, t := range h.topics {
		if len(t.watchers) == 0 {
			delete(h.topics, channel)
		}
	}
	h.running = len(h.topics) > 0
	return h.running
}

// pause waits before the next attempt, or until nobody watches any more.
func (h *hub) pause(d time.Duration) (again bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			h.changed() // what came meanwhile
			return true
		case <-h.dirty:
			h.mu.Lock()
			needed := h.needed()
			h.mu.Unlock()
			if !needed {
				return false
			}
		}
	}
}

// session serves the watchers on one connection. It answers nil when nobody watches
// any more, else why the connection broke.
func (h *hub) session() error {
	conn, _ := h.client.Dedicate()
	defer conn.Close() // a connection that was subscribed does not go back to the pool
	broken := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: h.message})
	sweep := time.NewTimer(linger)
	defer sweep.Stop()
	for {
		if err := h.subscribe(conn); err != nil {
			return err
		}
		idle, empty := h.unsubscribe(conn)
		switch {
		case empty:
			return nil
		case idle > 0:
			sweep.Reset(idle)
		default:
			sweep.Stop()
		}
		select {
		case <-h.dirty:
		case <-sweep.C:
		case err := <-broken:
			if err == nil {
				err = rueidis.ErrClosing
			}
			return err
		}
	}
}

// subscribe subscribes what is not yet, in one command.
func (h *hub) subscribe(conn rueidis.DedicatedClient) error {
	h.mu.Lock()
	var channels []string
	for channel, t := range h.topics {
		if !t.live && len(t.watchers) > 0 {
			channels = append(channels, channel)
		}
	}
	h.mu.Unlock()
	if len(channels) == 0 {
		return nil
	}
	err := command(conn, conn.B().Subscribe().Channel(channels...).Build())
	if _, refused := redisError(err); refused && len(channels) > 1 {
		for _, channel := range channels { // perhaps the user may not listen to one of them
			err := command(conn, conn.B().Subscribe().Channel(channel).Build())
			if _, refused := redisError(err); err != nil && !refused {
				return err
			}
			h.subscribed(err, channel)
		}
		return nil
	}
	if _, refused := redisError(err); err != nil && !refused {
		return err
	}
	h.subscribed(err, channels...)
	return nil
}

// subscribed takes in the answer of the server.
func (h *hub) subscribed(err error, channels ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channel := range channels {
		t := h.topics[channel]
		if err != nil {
			t.fail(explain(err))
			if len(t.watchers) == 0 {
				delete(h.topics, channel)
			}
			continue
		}
		t.live = true
		for _, w := range t.watchers {
			if w.set {
				w.notify() // after a gap: a message may have been missed
			} else {
				w.set = true
				w.ready <- nil
			}
		}
	}
}

// unsubscribe gives up what nobody has needed for a while. It answers when to look
// again, and whether no topic is left.
func (h *hub) unsubscribe(conn rueidis.DedicatedClient) (next time.Duration, empty bool) {
	h.mu.Lock()
	var channels []string
	for channel, t := range h.topics {
		if len(t.watchers) > 0 {
			continue
		}
		left := linger - time.Since(t.idle)
		switch {
		case !t.live:
			delete(h.topics, channel)
		case left <= 0:
			delete(h.topics, channel)
			channels = append(channels, channel)
		case next == 0 || left < next:
			next = left
		}
	}
	empty = len(h.topics) == 0
	h.mu.Unlock()
	if !empty && len(channels) > 0 {
		_ = command(conn, conn.B().Unsubscribe().Channel(channels...).Build()) // a message too many is harmless
	}
	return next, empty
}

func command(conn rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	return conn.Do(ctx, cmd).Error()
}
