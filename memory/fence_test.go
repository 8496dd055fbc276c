package memory_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// spec 6.1, 6.4: fences of a key grow however one grant follows another.
func TestFenceGrows(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	fenced := func(token string) locco.Lease {
		return locco.Lease{Key: "k", Token: token, TTL: ttl, Fenced: true}
	}
	last := int64(0)
	check := func(how string, g locco.Grant) {
		t.Helper()
		if !g.OK || g.Fence <= last || g.Fence >= 1<<53 {
			t.Errorf("%s: Grant = %+v; want OK, a fence above %d and below 2^53", how, g, last)
		}
		last = g.Fence
	}
	check("first", acquire(t, b, fenced("a")))
	wantRelease(t, b, "k", "a", true)
	check("after a release", acquire(t, b, fenced("b")))
	clock.advance(ttl)
	check("after the end of the lease", acquire(t, b, fenced("c")))
	clock.advance(ttl)
	wantHolds(t, b, "k", "c", false) // removes the ended lease
	check("after a sweep", acquire(t, b, fenced("d")))
	check("hand-over", wantTransfer(t, b, "d", fenced("e"), true))
	b.Clear()
	check("after Clear", acquire(t, b, fenced("f")))
	wantRelease(t, b, "k", "f", true)
	many, refused, err := b.AcquireMany(t.Context(), []locco.Lease{fenced("g")})
	if refused != -1 || err != nil {
		t.Fatalf("AcquireMany = %v, %d, %v; want a grant", many, refused, err)
	}
	check("many", many[0])
	wantExtend(t, b, fenced("g"), true)
	wantRelease(t, b, "k", "g", true)

	plain := acquire(t, b, locco.Lease{Key: "k", Token: "h", TTL: ttl})
	if !plain.OK || plain.Fence != 0 {
		t.Errorf("unfenced Acquire = %+v; want OK without a fence", plain)
	}
}

// spec 8.1: the counter starts from the wall clock, so that a restart keeps the
// order.
func TestFenceAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locco.Lease{Key: "k", Token: "a", TTL: ttl, Fenced: true}
		before := acquire(t, memory.New(), l).Fence
		if now := time.Now().UnixMicro(); before < now || before > now+1 {
			t.Errorf("first fence = %d; want the wall clock, %d", before, now)
		}
		time.Sleep(time.Millisecond)
		if after := acquire(t, memory.New(), l).Fence; after <= before {
			t.Errorf("fence after a restart = %d; want above %d", after, before)
		}
	})
}

// spec 1.1, 6.4: of those who try at once one wins, and the fences of the
// winners grow in the order in which they held the key. The holders count
// without a mutex: the race detector sees whether two held it at once.
func TestOneWinnerConcurrentSafe(t *testing.T) {
	t.Parallel()
	b := memory.New()
	const workers, grants = 8, 200
	var wg sync.WaitGroup
	count, last := 0, int64(0)
	for worker := range workers {
		wg.Go(func() {
			token := "worker" + strconv.Itoa(worker)
			wake, stop, err := b.Watch(t.Context(), "k")
			if err != nil {
				t.Errorf("Watch failed: %v", err)
				return
			}
			defer stop()
			for i := 0; i < grants; {
				g, err := b.Acquire(t.Context(), locco.Lease{Key: "k", Token: token, TTL: time.Hour, Fenced: true})
				if err != nil {
					t.Errorf("Acquire failed: %v", err)
					return
				}
				if !g.OK {
					<-wake // the key is held: its release wakes the first
					continue
				}
				i++
				count++
				if g.Fence <= last {
					t.Errorf("fence = %d after %d; want it to grow", g.Fence, last)
				}
				last = g.Fence
				if i == grants {
					stop() // before the release, which is to wake one who stays
				}
				wantRelease(t, b, "k", token, true)
			}
		})
	}
	wg.Wait()
	if count != workers*grants {
		t.Errorf("%d holds counted; want %d", count, workers*grants)
	}
}
