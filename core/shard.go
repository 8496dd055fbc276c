package locco

import (
	"hash/maphash"
	"maps"
	"sync"
)

// shard holds the rooms of a part of the keys.
type shard struct {
	mu    sync.Mutex // guards all below, and every room and waiter in it; never held over a call
	rooms map[string]*room
	peak  int   // most rooms since the map was made
	spare *room // one that was left, for the next key: saves the allocation
}

func (e *engine) shard(key string) *shard {
	return &e.shards[maphash.String(e.seed, key)%shardCount]
}

// enter returns the room of key, made new if nobody of this locker holds or
// waits for it.
func (sh *shard) enter(key string) (r *room, fresh bool) {
	if r = sh.rooms[key]; r != nil {
		return r, false
	}
	if r = sh.spare; r != nil {
		sh.spare = nil
		r.key = key
	} else {
		r = &room{key: key}
	}
	if sh.rooms == nil {
		sh.rooms = make(map[string]*room)
	}
	sh.rooms[key] = r
	sh.peak = max(sh.peak, len(sh.rooms))
	return r, true
}

// leave forgets r if nothing is left in it.
func (sh *shard) leave(r *room) {
	if r.owner != nil || r.looker != nil || r.head != nil || sh.rooms[r.key] != r {
		return
	}
	delete(sh.rooms, r.key)
	if r.shared { // a waiter, a watch or a look may still refer to it
		r.left = true
	} else {
		*r = room{}
		sh.spare = r
	}
	// A map keeps its buckets; a new one gives back what a burst of keys took.
	const few = 64
	if sh.peak > few && len(sh.rooms) < sh.peak/8 {
		rooms := make(map[string]*room, len(sh.rooms))
		maps.Copy(rooms, sh.rooms)
		sh.rooms, sh.peak = rooms, len(rooms)
	}
}
