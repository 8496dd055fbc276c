package memory

import (
	"context"
	"math/bits"

	locco "github.com/locco-go/locco/core"
)

// AcquireMany implements [locco.ManyAcquirer]. The keys may lie anywhere: every
// set can be taken in one step, and refused is the index of the first key that
// another holder has.
func (b *Backend) AcquireMany(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, -1, err
	}
	var set shardSet
	for i := range ls {
		set |= 1 << b.shardIndex(ls[i].Key)
	}
	b.lock(set)
	defer b.unlock(set)
	now := b.clock()
	for i := range ls {
		s := b.shardOf(ls[i].Key)
		if s.refuses(s.leases.find(ls[i].Key), &ls[i], now) {
			return nil, i, nil
		}
	}
	grants = make([]locco.Grant, len(ls))
	for i := range ls {
		s := b.shardOf(ls[i].Key)
		s.store(s.leases.find(ls[i].Key), &ls[i], now)
		grants[i] = b.granted(&ls[i])
	}
	for i := range ls {
		b.sweep(b.shardOf(ls[i].Key), now)
	}
	return grants, -1, nil
}

// ExtendMany implements [locco.ManyExtender].
func (b *Backend) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	for i, l := range ls {
		verdicts[i].OK, verdicts[i].Err = b.Extend(ctx, l)
	}
	return verdicts
}

// Clear forgets every lock in one step and wakes the first watcher of every
// key, as if each lock had been released. Watches stay, and the fence counter
// goes on from where it is. Holders find out as they do when a lease was lost:
// their next Extend, Release or Holds answers false.
func (b *Backend) Clear() {
	b.lock(allShards)
	defer b.unlock(allShards)
	for i := range b.shards {
		s := &b.shards[i]
		s.leases = leaseList{}
		for _, q := range s.queues.entries {
			q.wake()
		}
	}
}

// shardSet has a bit for each shard.
type shardSet uint64

const allShards = ^shardSet(0)

// lock locks the shards of set. All who lock several do it here, in the order
// of their indices, so that no two wait for each other.
func (b *Backend) lock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		b.shards[bits.TrailingZeros64(uint64(set))].mu.Lock()
	}
}

func (b *Backend) unlock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		b.shards[bits.TrailingZeros64(uint64(set))].mu.Unlock()
	}
}
