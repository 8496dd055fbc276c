package memory_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

func leases(token string, keys ...string) []locco.Lease {
	ls := make([]locco.Lease, len(keys))
	for i, key := range keys {
		ls[i] = locco.Lease{Key: key, Token: token, TTL: ttl, Fenced: true}
	}
	return ls
}

// wantMany checks the answer of AcquireMany; refused is -1 for a grant.
func wantMany(t *testing.T, b *memory.Backend, ls []locco.Lease, refused int) {
	t.Helper()
	grants, at, err := b.AcquireMany(t.Context(), ls)
	if at != refused || err != nil {
		t.Errorf("AcquireMany = %v, %d, %v; want refused %d", grants, at, err, refused)
		return
	}
	if refused >= 0 {
		return
	}
	if len(grants) != len(ls) {
		t.Fatalf("AcquireMany: %d grants for %d leases", len(grants), len(ls))
	}
	for i, g := range grants {
		if !g.OK || g.Fence > 0 != ls[i].Fenced {
			t.Errorf("AcquireMany: grant of %q = %+v; want OK, with a fence if asked for", ls[i].Key, g)
		}
	}
}

// ManyAcquirer: all or none, each lease by its own fields.
func TestAcquireMany(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	wantMany(t, b, nil, -1)
	wantAcquire(t, b, locco.Lease{Key: "c", Token: "other", TTL: ttl}, true)
	wantMany(t, b, leases("t", "a", "b", "c", "d"), 2)
	for _, key := range []string{"a", "b", "d"} {
		wantHolds(t, b, key, "t", false)
	}
	clock.advance(ttl) // the end of c's lease
	set := leases("t", "a", "b", "c", "d")
	set[1].Fenced, set[1].TTL = false, 2*ttl
	wantMany(t, b, set, -1)
	clock.advance(ttl)
	for i, live := range []bool{false, true, false, false} {
		wantHolds(t, b, set[i].Key, "t", live)
	}
}

// Lease.Again counts for each key of a set alone.
func TestAcquireManyAgain(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	wantMany(t, b, leases("t", "a", "b"), -1)
	set := leases("t", "a", "b", "c")
	wantMany(t, b, set, 0)
	set[0].Again = true
	wantMany(t, b, set, 1)
	wantHolds(t, b, "c", "t", false)
	set[1].Again = true
	wantMany(t, b, set, -1)
	wantHolds(t, b, "c", "t", true)
}

// ManyExtender: one verdict a lease, in order, and none harms another.
func TestExtendMany(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	wantMany(t, b, leases("t", "a", "b", "c"), -1)
	wantRelease(t, b, "b", "t", true)
	clock.advance(ttl - 1)
	got := b.ExtendMany(t.Context(), leases("t", "c", "b", "x", "a"))
	want := []locco.Verdict{{OK: true}, {}, {}, {OK: true}}
	if !slices.Equal(got, want) {
		t.Errorf("ExtendMany = %v; want %v", got, want)
	}
	clock.advance(ttl - 1)
	wantHolds(t, b, "a", "t", true)
	wantHolds(t, b, "b", "t", false)
}

// ManyAcquirer: overlapping sets that are taken at once neither deadlock nor
// share a key, and Clear forgets a set whole. The holders write what the keys
// guard without a mutex: the race detector sees whether two held one at once.
func TestAcquireManyConcurrentSafe(t *testing.T) {
	t.Parallel()
	b := memory.New()
	const keys, workers, rounds = 12, 6, 300
	guarded := make([]int, keys)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for round := range rounds {
				token := strconv.Itoa(worker) + "/" + strconv.Itoa(round)
				var set []locco.Lease
				var mine []int
				for k := range keys {
					if (round+k*(worker+1))%3 == 0 {
						mine = append(mine, k)
						set = append(set, locco.Lease{Key: fmt.Sprintf("k%02d", k), Token: token, TTL: time.Hour})
					}
				}
				_, refused, err := b.AcquireMany(t.Context(), set)
				if err != nil {
					t.Errorf("AcquireMany failed: %v", err)
				}
				for i, k := range mine {
					if refused < 0 {
						guarded[k]++
					}
					ok, err := b.Release(t.Context(), set[i].Key, token)
					if err != nil || ok != (refused < 0) {
						t.Errorf("Release after refused = %d: %v, %v", refused, ok, err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// spec 8.1: Clear is one step, so of a set taken at the same time it forgets
// all keys or none.
func TestClearConcurrentSafe(t *testing.T) {
	t.Parallel()
	b := memory.New()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				b.Clear()
			}
		}
	}()
	set := leases("t", "a", "b", "c", "d", "e", "f", "g", "h")
	for i := range set {
		set[i].Again = true
	}
	for range 2000 {
		wantMany(t, b, set, -1)
		gone := "" // Clear came before: it took those checked later, too
		for _, l := range set {
			ok, err := b.Holds(t.Context(), l.Key, "t")
			if err != nil || ok && gone != "" {
				t.Fatalf("Holds(%q) = %v, %v after %q of the same set was gone", l.Key, ok, err, gone)
			}
			if !ok {
				gone = l.Key
			}
		}
	}
	close(stop)
	<-done
}
