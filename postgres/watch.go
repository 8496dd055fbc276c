package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	locco "github.com/locco-go/locco/core"
)

// A key has a number of 64 bits: an advisory lock of that number says that somebody
// waits, and a channel of that name says that the key is free. Two keys with the same
// number wake each other's waiters, which costs a look.
func number(key string) int64 {
	sum := sha256.Sum256([]byte("locco:" + key))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // all 64 bits, of whatever sign
}

// channel is what the statement of a release makes of a number.
func channel(number int64) string {
	return channelPrefix + strconv.FormatUint(uint64(number), 16) //nolint:gosec // as to_hex does
}

const (
	channelPrefix = "locco_"

	// linger is how long a key is listened to when nobody needs it any more, so that
	// waiters that come and go cost no statement each.
	linger = time.Second

	// listenTimeout bounds a statement of the listening connection.
	listenTimeout = 5 * time.Second

	// The waits between two attempts to connect.
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second

	// maxTopics is how many keys are listened to at a time. Each is an entry in the
	// server's table of locks, which all sessions share: it has
	// max_locks_per_transaction times max_connections entries, 6,400 by default.
	maxTopics = 1000
)

// Watch implements [locco.Watcher]. All watches of a Backend share one connection,
// opened at the first and closed a second after the last; one that broke is opened
// again in the background, after which every watcher is woken once. At most 1,000 keys
// are watched at a time, and waiters of others look once in every retry delay. With
// [WithoutWakeUps] it answers [errors.ErrUnsupported].
func (b *Backend) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	if b.hub == nil {
		return nil, nil, errors.ErrUnsupported
	}
	return b.hub.watch(ctx, number(key))
}

// hub shares one listening connection among watchers. Its goroutine runs as long as
// somebody watches, and a little longer.
type hub struct {
	connect func(ctx context.Context) (*pgx.Conn, error)
	dirty   chan struct{} // topics have changed

	mu      sync.Mutex       // guards what follows, and what is in the topics
	topics  map[int64]*topic // by the numbers of their keys
	running bool
}

// topic is a channel that is listened to, or is to be.
type topic struct {
	watchers []*watcher
	live     bool      // on the present connection
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

func newHub(connect func(ctx context.Context) (*pgx.Conn, error)) *hub {
	return &hub{connect: connect, dirty: make(chan struct{}, 1), topics: map[int64]*topic{}}
}

// tooManyError is the answer to a watch of one key too many.
type tooManyError struct{}

func (tooManyError) Error() string {
	return fmt.Sprintf("locco: %d keys are watched already; waiters of others look once in every retry delay", maxTopics)
}

func (h *hub) watch(ctx context.Context, number int64) (wake <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &watcher{wake: make(chan struct{}, 1), ready: make(chan error, 1)}
	h.mu.Lock()
	t := h.topics[number]
	if t == nil {
		if len(h.topics) >= maxTopics {
			h.mu.Unlock()
			return nil, nil, tooManyError{}
		}
		t = &topic{}
		h.topics[number] = t
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
		t.watchers = slices.DeleteFunc(t.watchers, func(w *watcher) bool {
			if w.set {
				return false
			}
			w.set = true
			w.ready <- err
			return true
		})
	}
	return h.needed()
}

// needed forgets idle topics of a broken connection and ends the hub if none is
// left. It is called with the mutex.
func (h *hub) needed() bool {
	for number, t := range h.topics {
		if len(t.watchers) == 0 {
			delete(h.topics, number)
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
	ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
	defer cancel()
	conn, err := h.connect(ctx)
	if err != nil {
		return err
	}
	if conn == nil {
		return &locco.ValidationError{Field: "postgres.WithListenConn", Rule: "must return a connection or an error"}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	for {
		pending, err := h.listen(conn)
		if err != nil {
			return err
		}
		idle, empty, err := h.unlisten(conn)
		if err != nil || empty {
			return err
		}
		if pending && (idle == 0 || idle > firstBackoff) {
			idle = firstBackoff
		}
		if err := h.wait(conn, idle); err != nil {
			return err
		}
	}
}

// wait takes in notifications until topics have changed, or for idle if that is not 0.
func (h *hub) wait(conn *pgx.Conn, idle time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if idle > 0 {
		ctx, cancel = context.WithTimeout(ctx, idle)
		defer cancel()
	}
	// The context of the wait ends when topics change. The goroutine ends with it.
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-h.dirty:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-done }()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil:
			h.message(n.Channel)
		case ctx.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// message wakes all who watch what the channel is about.
func (h *hub) message(channel string) {
	number, err := strconv.ParseUint(strings.TrimPrefix(channel, channelPrefix), 16, 64)
	if err != nil {
		return // another's
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[int64(number)]; t != nil { //nolint:gosec // as to_hex does
		for _, w := range t.watchers {
			w.notify()
		}
	}
}

// listen begins with what is not listened to yet, in one round trip. The advisory lock
// says to those who release that somebody waits. While a release that found nobody
// commits, it is not to be had, and listen is to be called again soon: who looks once
// it is there finds the key free.
func (h *hub) listen(conn *pgx.Conn) (pending bool, err error) {
	h.mu.Lock()
	var numbers []int64
	for number, t := range h.topics {
		if !t.live && len(t.watchers) > 0 {
			numbers = append(numbers, number)
		}
	}
	h.mu.Unlock()
	results, err := script(conn, numbers, "LISTEN %s; SELECT pg_try_advisory_lock_shared(%d);")
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, number := range numbers {
		t := h.topics[number]
		if answer := results[2*i+1].Rows; len(answer) != 1 || string(answer[0][0]) != "t" {
			pending = true
			continue
		}
		t.live = true
		for _, w := range t.watchers {
			if w.set {
				w.notify() // after a gap: a notification may have been missed
			} else {
				w.set = true
				w.ready <- nil
			}
		}
	}
	return pending, nil
}

// unlisten gives up what nobody has needed for a while. It answers when to look
// again, and whether no topic is left.
func (h *hub) unlisten(conn *pgx.Conn) (next time.Duration, empty bool, err error) {
	h.mu.Lock()
	var numbers []int64
	for number, t := range h.topics {
		if len(t.watchers) > 0 {
			continue
		}
		left := linger - time.Since(t.idle)
		switch {
		case !t.live:
			delete(h.topics, number)
		case left <= 0:
			delete(h.topics, number)
			numbers = append(numbers, number)
		case next == 0 || left < next:
			next = left
		}
	}
	empty = len(h.topics) == 0
	h.mu.Unlock()
	if empty { // the connection ends, and its locks with it
		return 0, true, nil
	}
	_, err = script(conn, numbers, "UNLISTEN %s; SELECT pg_advisory_unlock_shared(%d);")
	return next, false, err
}

// script runs two statements for each number, in one round trip and one transaction.
func script(conn *pgx.Conn, numbers []int64, statements string) ([]*pgconn.Result, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	var sql strings.Builder
	for _, number := range numbers {
		fmt.Fprintf(&sql, statements, channel(number), number)
	}
	ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
	defer cancel()
	results, err := conn.PgConn().Exec(ctx, sql.String()).ReadAll()
	if err == nil && len(results) != 2*len(numbers) {
		err = fmt.Errorf("locco: %d results of %d statements", len(results), 2*len(numbers))
	}
	return results, err
}
