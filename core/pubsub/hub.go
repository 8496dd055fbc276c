package pubsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Conn is a connection that is subscribed to topics. The hub calls one method at a time.
type Conn interface {
	// Subscribe begins with topics. Those that could not be had are in refused, each
	// with its reason; [ErrLater] is for those that can be had in a moment. An error
	// means that the connection is of no use any more.
	Subscribe(ctx context.Context, topics []string) (refused map[string]error, err error)

	// Unsubscribe ends topics, and what was begun for those whose last answer was
	// [ErrLater]. Messages about them that still come are harmless.
	Unsubscribe(ctx context.Context, topics []string) error

	// Wait returns nil when ctx ends, and an error when the connection broke. A driver
	// that receives only when asked to does so here.
	Wait(ctx context.Context) error

	// Close ends the connection. It does not block for long.
	Close()
}

// Events is what a Conn reports to. Its methods do not block, and may be called at any
// time from any goroutine.
type Events interface {
	// Message says that topic was published.
	Message(topic string)

	// Lost says that the subscription of topic has ended, though the connection did not
	// break. The hub subscribes it again.
	Lost(topic string)
}

// ErrLater is a reason of [Conn.Subscribe]: try it again in a moment.
var ErrLater = errors.New("locco: the subscription can be had later")

const (
	// linger is how long a subscription stays when nobody needs it any more, so that
	// waiters that come and go cost no command each.
	linger = time.Second

	// callTimeout bounds a call of a Conn, and of what opens one.
	callTimeout = 5 * time.Second

	// The waits between two attempts at a connection, or at a topic that was refused.
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// Hub shares one connection among watchers. Create it with [New]. It is safe for
// concurrent use. A goroutine of its own runs as long as somebody watches, and a second
// longer.
type Hub struct {
	open  func(ctx context.Context, events Events) (Conn, error)
	dirty chan struct{} // topics have changed

	mu      sync.Mutex // guards what follows, and what is in the topics
	topics  map[string]*topic
	running bool
}

// New returns a Hub whose connection comes from open. Open returns before its context
// ends.
func New(open func(ctx context.Context, events Events) (Conn, error)) *Hub {
	return &Hub{open: open, dirty: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// topic is subscribed, or is to be.
type topic struct {
	watchers []*watcher
	live     bool          // subscribed on the present connection
	lost     bool          // its subscription ended while it was made
	begun    bool          // perhaps: the last answer was ErrLater
	idle     time.Time     // since when nobody watches
	since    time.Time     // since when it is live
	pause    time.Duration // before it is subscribed after its next loss
	backoff  time.Duration // the last wait after it was refused
	next     time.Time     // not to be tried before
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

// Watch subscribes topic, and returns when the subscription is there: what
// [locco.Watcher] promises. A refusal of the topic and the failure to connect are
// errors.
func (h *Hub) Watch(ctx context.Context, name string) (wake <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &watcher{wake: make(chan struct{}, 1), ready: make(chan error, 1)}
	h.mu.Lock()
	t := h.topics[name]
	if t == nil {
		t = &topic{}
		h.topics[name] = t
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

// Topics returns how many topics are subscribed, or are to be.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

func (h *Hub) stop(t *topic, w *watcher) {
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

func (h *Hub) changed() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

// events are the reports of one connection. Those of one that is gone do not count.
type events struct {
	hub    *Hub
	mu     sync.Mutex
	closed bool
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}

// Message implements [Events].
func (e *events) Message(name string) {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if t := e.hub.topics[name]; t != nil {
		for _, w := range t.watchers {
			w.notify()
		}
	}
}

// Lost implements [Events].
func (e *events) Lost(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if t := e.hub.topics[name]; t != nil {
		if t.live {
			t.ended()
		}
		t.live, t.lost = false, true
		e.hub.changed()
	}
}

// ended says when to subscribe anew a topic whose subscription has just ended: at once,
// and less and less often while it does not last. It is called with the mutex.
func (t *topic) ended() {
	now := time.Now()
	if now.Sub(t.since) > maxBackoff {
		t.pause = 0
	}
	t.next = now.Add(t.pause)
	t.pause = longer(t.pause)
}

// longer is the wait after one of d.
func longer(d time.Duration) time.Duration { return min(max(2*d, firstBackoff), maxBackoff) }

// run keeps a connection open while it is needed.
func (h *Hub) run() {
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
		if !h.pause(jitter(backoff)) {
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d)/2 }

// broke tells those who set up a watch that it failed. It reports whether somebody
// still watches.
func (h *Hub) broke(err error) bool {
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
func (h *Hub) needed() bool {
	for name, t := range h.topics {
		if len(t.watchers) == 0 {
			delete(h.topics, name)
		}
	}
	h.running = len(h.topics) > 0
	return h.running
}

// pause waits before the next attempt, or until nobody watches any more.
func (h *Hub) pause(d time.Duration) (again bool) {
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
func (h *Hub) session() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	ev := &events{hub: h}
	defer ev.close()
	conn, err := h.open(ctx, ev)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		retry, err := h.subscribe(conn)
		if err != nil {
			return err
		}
		idle, empty, err := h.unsubscribe(conn)
		if err != nil || empty {
			return err
		}
		if retry > 0 && (idle == 0 || retry < idle) {
			idle = retry
		}
		if err := h.wait(conn, idle); err != nil {
			return err
		}
	}
}

// subscribe begins with what is not subscribed yet. It answers when to try again what
// was refused, 0 for never.
func (h *Hub) subscribe(conn Conn) (retry time.Duration, err error) {
	now := time.Now()
	h.mu.Lock()
	var names []string
	for name, t := range h.topics {
		switch {
		case t.live || len(t.watchers) == 0:
		case t.next.After(now):
			retry = sooner(retry, t.next.Sub(now))
		default:
			t.lost = false
			names = append(names, name)
		}
	}
	h.mu.Unlock()
	if len(names) == 0 {
		return retry, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	refused, err := conn.Subscribe(ctx, names)
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		if t := h.topics[name]; !h.subscribed(t, refused[name]) {
			t.next = time.Now().Add(t.backoff)
			retry = sooner(retry, t.backoff)
			if len(t.watchers) == 0 && !t.begun {
				delete(h.topics, name)
			}
		}
	}
	return retry, nil
}

// subscribed takes in what became of a topic. It is called with the mutex.
func (h *Hub) subscribed(t *topic, refused error) bool {
	t.begun = errors.Is(refused, ErrLater)
	switch {
	case t.begun:
		t.backoff = firstBackoff
		return false
	case refused == nil && t.lost:
		t.backoff = longer(t.backoff)
		return false
	case refused != nil:
		t.fail(refused)
		t.backoff = longer(t.backoff)
		return false
	}
	t.live, t.since, t.backoff = true, time.Now(), 0
	for _, w := range t.watchers {
		if w.set {
			w.notify() // after a gap: a message may have been missed
		} else {
			w.set = true
			w.ready <- nil
		}
	}
	return true
}

// unsubscribe gives up what nobody has needed for a while. It answers when to look
// again, 0 for never, and whether no topic is left.
func (h *Hub) unsubscribe(conn Conn) (next time.Duration, empty bool, err error) {
	h.mu.Lock()
	var names []string
	for name, t := range h.topics {
		if len(t.watchers) > 0 {
			continue
		}
		left := linger - time.Since(t.idle)
		switch {
		case !t.live:
			delete(h.topics, name)
			if t.begun {
				names = append(names, name)
			}
		case left <= 0:
			delete(h.topics, name)
			names = append(names, name)
		default:
			next = sooner(next, left)
		}
	}
	empty = len(h.topics) == 0
	h.mu.Unlock()
	if empty || len(names) == 0 { // the end of the connection ends its subscriptions
		return next, empty, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return next, false, conn.Unsubscribe(ctx, names)
}

// wait leaves the connection to its messages until topics have changed, or for idle if
// that is not 0.
func (h *Hub) wait(conn Conn, idle time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	var expired <-chan time.Time
	if idle > 0 {
		timer := time.NewTimer(idle)
		defer timer.Stop()
		expired = timer.C
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-h.dirty:
		case <-expired:
		case <-ctx.Done():
		}
		cancel()
	}()
	defer func() { cancel(); <-done }()
	return conn.Wait(ctx)
}

// sooner is the smaller of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}
