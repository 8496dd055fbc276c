package memory

import (
	"hash/maphash"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

const (
	// shardCount is how many mutexes the keys are spread over. It is the number
	// of bits of a shardSet.
	shardCount = 64

	// sweepSteps is how many leases of its shard each operation also looks at,
	// to remove those that ended. An operation adds one lease at most, so that
	// two steps win: a round over n leases takes n/2 operations, and a lease
	// that ended is gone before n operations are over twice. Where every lease
	// is left to run out, the ended ones stay fewer than the live ones.
	sweepSteps = 2

	// visitEvery is after how many operations on a shard one of them sweeps
	// another shard, too, so that those are swept in which no key is in use.
	// The steps of a visit come to sweepSteps an operation again.
	visitEvery = 16
	visitSteps = visitEvery * sweepSteps
)

// shard is the part of the store that one mutex guards.
type shard struct {
	mu     sync.Mutex // guards all below
	leases leaseList
	queues table[*queue] // only keys that are watched
	ops    uint          // operations so far
	_      [48]byte      // keeps the mutexes of two shards off one cache line
}

func (b *Backend) shardIndex(key string) uint64 {
	return maphash.String(b.seed, key) % shardCount
}

func (b *Backend) shardOf(key string) *shard {
	return &b.shards[b.shardIndex(key)]
}

// sweep frees keys whose lease has ended, a few in s, which is locked, and a
// few elsewhere. It ends an operation and does not begin it: an Acquire is to
// take over the ended lease of its key, not to wake a watcher who would then find
// the key held.
func (b *Backend) sweep(s *shard, now time.Duration) {
	s.sweep(now, sweepSteps)
	if s.ops++; s.ops%visitEvery != 0 {
		return
	}
	// Never waiting here, it may hold any other shard. One that is busy is being
	// swept by those who use it.
	if other := &b.shards[s.ops/visitEvery%shardCount]; other.mu.TryLock() {
		other.sweep(now, visitSteps)
		other.mu.Unlock()
	}
}

// sweep looks at the next leases, as many as steps says.
func (s *shard) sweep(now time.Duration, steps int) {
	for range steps {
		at := s.leases.next()
		if at < 0 {
			return
		}
		if s.leases.list[at].ended(now) {
			s.free(at)
		}
	}
}

// refuses tells whether the lease stored at index at, if any, keeps l from
// being granted.
func (s *shard) refuses(at int, l *locco.Lease, now time.Duration) bool {
	if at < 0 {
		return false
	}
	present := &s.leases.list[at]
	return !present.ended(now) && !(l.Again && present.token == l.Token)
}

// refusal is the answer to l when the lease stored at index at, if any, is not
// its own.
func (s *shard) refusal(at int, l *locco.Lease, now time.Duration) locco.Grant {
	if at < 0 || !l.WantLeft {
		return locco.Grant{}
	}
	ends := s.leases.list[at].ends
	if q := s.queueOf(l.Key); q != nil {
		q.told = max(q.told, ends)
	}
	return locco.Grant{Left: ends - now}
}

// heldBy returns the index of key's lease if token holds it, else -1. An ended
// lease is nobody's: it is removed.
func (s *shard) heldBy(key, token string, now time.Duration) int {
	at := s.leases.find(key)
	switch {
	case at < 0:
		return -1
	case s.leases.list[at].ended(now):
		s.free(at)
		return -1
	case s.leases.list[at].token != token:
		return -1
	}
	return at
}

// store writes l from now over the lease at index at, or adds it if at is
// negative.
func (s *shard) store(at int, l *locco.Lease, now time.Duration) {
	ends := now + l.TTL
	if at < 0 {
		s.leases.add(l.Key, l.Token, ends)
	} else {
		present := &s.leases.list[at]
		present.token, present.ends = l.Token, ends
	}
	if q := s.queueOf(l.Key); q != nil && ends < q.told {
		q.wake()
	}
}

// free removes the lease at index at and wakes the first watcher of its key.
func (s *shard) free(at int) {
	key := s.leases.list[at].key
	s.leases.remove(at)
	if q := s.queueOf(key); q != nil {
		q.wake()
	}
}
