package memory

import (
	"context"
	"time"
)

// Watch implements [locco.Watcher]. The watchers of a key are a queue in the
// order of arrival, and one is woken at a time: the first, who then goes to the
// end. So each is woken once before one is woken twice, and a locker, which
// keeps its watch while its own waiters take turns, cannot keep the wake-ups
// from another.
//
// A watcher is woken when the key becomes free: by a release, by
// [Backend.Clear], or because an operation came across its ended lease. It is
// also woken when the key's new lease ends before one that a refusal told of
// ([locco.Lease.WantLeft]), because the waiter that was told would sleep past
// it; that is so for a hand-over by [Backend.Transfer], too.
//
// No wake-up is lost as long as a watcher that was woken looks at the key or
// calls stop, and one that was refused looks again when the lease it was told of
// has ended. When the one woken last calls stop and the key is free, or held for
// less long than was told, the next is woken, whether or not the wake-up was
// received.
//
// Watch wakes nobody, also when the key is free at that time: the caller looks
// once more after Watch has returned. The watch costs memory until stop is
// called; stop may be called more than once and from any goroutine.
func (b *Backend) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &watcher{key: key, wake: make(chan struct{}, 1)}
	s := b.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueOf(key)
	if q == nil {
		q = &queue{}
		s.queues.set(key, q)
	}
	q.push(w)
	return w.wake, func() { b.unwatch(w) }, nil
}

// unwatch takes w off its queue. If it was up to w to look, that is now up to the
// next one: not the wake-up is passed on but its reason, if that still holds.
func (b *Backend) unwatch(w *watcher) {
	s := b.shardOf(w.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	q := w.queue
	if q == nil {
		return // stopped before
	}
	now := b.clock()
	defer b.sweep(s, now)
	responsible := q.woken == w || q.woken == nil
	q.remove(w)
	if q.head == nil {
		s.queues.remove(w.key)
		return
	}
	if !responsible {
		return
	}
	switch at := s.leases.find(w.key); {
	case at >= 0 && s.leases.list[at].ended(now):
		s.free(at) // wakes, and only once: a later sweep has no more to find
	case at < 0 || s.leases.list[at].ends < q.told:
		q.wake()
	}
}

// queueOf returns the watchers of key, nil if there are none. An unwatched
// shard answers without hashing the key.
func (s *shard) queueOf(key string) *queue {
	if len(s.queues.entries) == 0 {
		return nil
	}
	return s.queues.entries[key]
}

// queue has the watchers of one key in the order in which they are woken. It is
// in the shard's table only while it has one.
type queue struct {
	head, tail *watcher

	// woken is the one that was woken last, nil if it has stopped. As long as it
	// watches, it is up to it to look.
	woken *watcher

	// told is the latest end of a lease that a refusal told of while the key
	// was watched. Nobody who waits for the end of a lease sleeps longer. A
	// lease that ends later needs no word: the sleeper will look before that.
	told time.Duration
}

// wake wakes the first watcher and moves it to the end. A wake-up that is still
// in its channel serves for both.
func (q *queue) wake() {
	w := q.head
	q.remove(w)
	q.push(w)
	q.woken = w
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (q *queue) push(w *watcher) {
	w.queue, w.prev = q, q.tail
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

func (q *queue) remove(w *watcher) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queue, w.prev, w.next = nil, nil, nil
	if q.woken == w {
		q.woken = nil
	}
}

// watcher is one watch. Its links are guarded by the shard's mutex.
type watcher struct {
	key        string
	wake       chan struct{} // room for one
	queue      *queue        // nil once stopped
	prev, next *watcher
}
