package memory

import (
	"strconv"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// These tests are inside the package because they count what is stored, which
// no method tells.

// stored counts the leases, ended ones too, and the watched keys, and checks
// that a shard's list and index agree.
func stored(t *testing.T, b *Backend) (leases, watched int) {
	t.Helper()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		if len(s.leases.list) != len(s.leases.index.entries) {
			t.Errorf("shard %d: %d leases listed, %d indexed", i, len(s.leases.list), len(s.leases.index.entries))
		}
		for at := range s.leases.list {
			if found := s.leases.find(s.leases.list[at].key); found != at {
				t.Errorf("shard %d: lease %d is indexed as %d", i, at, found)
			}
		}
		leases += len(s.leases.list)
		watched += len(s.queues.entries)
		s.mu.Unlock()
	}
	return leases, watched
}

// clockOf makes *now the clock of a new Backend.
func clockOf(now *time.Duration) *Backend {
	return New(WithClock(func() time.Duration { return *now }))
}

func take(t *testing.T, b *Backend, key int, ttl time.Duration) {
	t.Helper()
	g, err := b.Acquire(t.Context(), locco.Lease{Key: strconv.Itoa(key), Token: "t", TTL: ttl})
	if !g.OK || err != nil {
		t.Fatalf("Acquire(%d) = %+v, %v; want a grant", key, g, err)
	}
}

// spec 8.1: where nobody ever releases, ended leases stay fewer than live ones.
func TestSweepKeepsUp(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	b := clockOf(&now)
	const live, ttl = 10_000, 10_000 * time.Millisecond
	most := 0
	for key := range 10 * live {
		now += time.Millisecond
		take(t, b, key, ttl)
		if key%(live/10) == 0 {
			n, _ := stored(t, b)
			most = max(most, n)
		}
	}
	if most > 2*live {
		t.Errorf("up to %d leases stored where %d are live; want at most twice as many", most, live)
	}
}

// spec 8.1: leases that were left behind by a crowd go while others work on few
// keys, at the latest after twice as many operations.
func TestSweepAfterACrowd(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(t *testing.T, b *Backend, i int){
		"Grants": func(t *testing.T, b *Backend, i int) { take(t, b, i, 1) },
		"OneKey": func(t *testing.T, b *Backend, _ int) { take(t, b, 9_999, 1) },
		"Extensions": func(t *testing.T, b *Backend, i int) {
			if ok, err := b.Extend(t.Context(), locco.Lease{Key: strconv.Itoa(i % 1000), Token: "t", TTL: time.Hour}); !ok {
				t.Fatalf("Extend(%d) = %v, %v; want true", i%1000, ok, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Duration(0)
			b := clockOf(&now)
			const crowd = 50_000
			for key := range 1000 {
				take(t, b, key, 100*time.Hour)
			}
			for key := range crowd {
				take(t, b, 1_000_000+key, time.Second)
			}
			now += time.Second
			for i := range 2 * crowd {
				work(t, b, 10_000+i)
				now++ // a grant of one nanosecond has ended by now
			}
			if n, _ := stored(t, b); n > 2000 {
				t.Errorf("%d leases stored; want the 1000 live ones and few more", n)
			}
		})
	}
}

// spec 8.1: what is released and no longer watched leaves nothing behind, nor
// does Clear.
func TestNothingLeftBehind(t *testing.T) {
	t.Parallel()
	b := New()
	const n = 1000
	var stops []func()
	for key := range n {
		take(t, b, key, time.Hour)
		for range 3 {
			_, stop, err := b.Watch(t.Context(), strconv.Itoa(key))
			if err != nil {
				t.Fatalf("Watch failed: %v", err)
			}
			stops = append(stops, stop)
		}
	}
	if leases, watched := stored(t, b); leases != n || watched != n {
		t.Errorf("%d leases and %d watched keys; want %d of both", leases, watched, n)
	}
	for key := range n / 2 {
		if ok, err := b.Release(t.Context(), strconv.Itoa(key), "t"); !ok {
			t.Fatalf("Release(%d) = %v, %v; want true", key, ok, err)
		}
	}
	b.Clear()
	if leases, watched := stored(t, b); leases != 0 || watched != n {
		t.Errorf("after Clear: %d leases and %d watched keys; want 0 and %d", leases, watched, n)
	}
	for _, stop := range stops {
		stop()
	}
	if leases, watched := stored(t, b); leases+watched != 0 {
		t.Errorf("%d leases and %d watched keys left; want none", leases, watched)
	}
}

// A table is copied when it has become mostly empty, and not again before it
// has lost most of what it had then.
func TestTableShrinks(t *testing.T) {
	t.Parallel()
	var tab table[int]
	const n = 10_000
	for i := range n {
		tab.set(strconv.Itoa(i), i)
	}
	copies := 0
	remove := func(i int) {
		peak := tab.peak
		tab.remove(strconv.Itoa(i))
		if tab.peak != peak {
			copies++
		}
	}
	for i := range n {
		remove(i)
		if want := n - 1 - i; len(tab.entries) != want {
			t.Fatalf("%d entries after removing %d; want %d", len(tab.entries), i+1, want)
		}
	}
	if copies < 2 || copies > 4 { // 10000, 1249, 155
		t.Errorf("copied %d times on the way from %d entries to 0; want about one copy an eighth", copies, n)
	}
	copies = 0
	for i := range n { // few keys: no copies
		tab.set(strconv.Itoa(i), i)
		remove(i)
	}
	if copies != 0 {
		t.Errorf("copied %d times while entries came and went; want none", copies)
	}
}
