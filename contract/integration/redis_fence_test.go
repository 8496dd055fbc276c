package integration_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
	"github.com/locco-go/locco/redis/protocol"
)

// TestRedisFenceCounter holds that the counter of the fences has all its digits and a
// day to live, goes on from what is ahead of the clock, and that one that is broken
// stays as it is and leaves no lease behind: spec 6.1, 8.2.
func TestRedisFenceCounter(t *testing.T) {
	t.Parallel()
	for _, kind := range integration.Redises() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			client := integration.SharedRedis(t, kind).Client(t)
			for _, tc := range []struct {
				was  string
				next int64 // 0: at least the time; -1: an error
			}{
				{"", 0},
				{"1", 0},
				{"9007199254740000", 9007199254740001},
				{"9007199254740990", 9007199254740991},
				{"9007199254740991", -1},
				{"99999999999999999999", -1},
				{"many", -1},
				{"nan", -1},
			} {
				key := "fence-counter:" + t.Name() + ":" + tc.was
				counter := protocol.FenceKey(key)
				if tc.was != "" {
					if err := client.Do(t.Context(), client.B().Set().Key(counter).Value(tc.was).Build()).Error(); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now().Add(-time.Minute).UnixMicro() // the server has a clock of its own
				g, err := redis.New(client).Acquire(t.Context(), locco.Lease{Key: key, Token: "token", TTL: time.Minute, Fenced: true})
				is, _ := client.Do(t.Context(), client.B().Get().Key(counter).Build()).ToString()
				left, _ := client.Do(t.Context(), client.B().Pttl().Key(counter).Build()).AsInt64()
				if tc.next < 0 {
					stored, e := client.Do(t.Context(), client.B().Exists().Key(key).Build()).AsInt64()
					if err == nil || is != tc.was || stored != 0 || e != nil {
						t.Errorf("counter %q: Acquire = %v, %v, the counter is %q, leases stored: %d, %v; want an error, the same counter, no lease",
							tc.was, g, err, is, stored, e)
					}
					continue
				}
				if err != nil || !g.OK || is != strconv.FormatInt(g.Fence, 10) {
					t.Errorf("counter %q: Acquire = %v, %v, the counter is %q; want a grant and its fence", tc.was, g, err, is)
				}
				if tc.next > 0 && g.Fence != tc.next || tc.next == 0 && g.Fence < began {
					t.Errorf("counter %q: fence %d; want %d, or at least the time if that is 0", tc.was, g.Fence, tc.next)
				}
				if day := (24 * time.Hour).Milliseconds(); left > day || left < day-time.Hour.Milliseconds() {
					t.Errorf("counter %q: expires in %d ms; want a day", tc.was, left)
				}
			}
		})
	}
}
