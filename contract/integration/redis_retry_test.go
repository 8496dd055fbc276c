package integration_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// spec 2.6: what rueidis repeats by itself never turns our own grant into somebody
// else's lock: with its retries and without, and with connections whose lifetime ends
// while answers are outstanding, which is when it sends a write again.
func TestRueidisRetries(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		for name, change := range map[string]func(o *rueidis.ClientOption){
			"Default":      func(*rueidis.ClientOption) {},
			"DisableRetry": func(o *rueidis.ClientOption) { o.DisableRetry = true },
			"ConnLifetime": func(o *rueidis.ClientOption) { o.ConnLifetime = 300 * time.Millisecond },
			"Pipelining":   func(o *rueidis.ClientOption) { o.AlwaysPipelining = true; o.ConnLifetime = 300 * time.Millisecond },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				proxy := integration.StartProxy(t, n.Addr)
				option := rueidis.ClientOption{InitAddress: []string{proxy.Addr}, ForceSingleClient: true, DisableCache: true}
				change(&option)
				client, err := rueidis.NewClient(option)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(client.Close)
				for _, opts := range [][]locco.Option{nil, {locco.WithFencing()}} {
					retries(t, newLocker(t, redis.New(client), opts...), proxy)
				}
			})
		}
	})
}

// retries takes keys that nobody else wants, while the network loses answers, breaks
// connections and is silent for longer than the driver waits for a connection's end.
func retries(t *testing.T, l *locco.Locker, proxy *integration.Proxy) {
	t.Helper()
	prefix := t.Name() + ":" + strconv.FormatInt(time.Now().UnixNano(), 36) + ":"
	faults := []func(key string){
		func(string) {},
		func(key string) { proxy.DropReply(key) },
		func(string) { proxy.Cut() },
		func(string) {
			proxy.Silence()
			time.AfterFunc(1500*time.Millisecond, proxy.Resume)
		},
	}
	for i := range 3 * len(faults) {
		key := prefix + strconv.Itoa(i)
		faults[i%len(faults)](key)
		if i%2 == 0 {
			lock, err := l.Acquire(t.Context(), key, time.Minute, locco.RetryTimeout(patience), locco.RetryDelay(20*time.Millisecond))
			if err != nil {
				t.Errorf("Acquire of a key that nobody else wants = %v; want a lock", err)
				continue
			}
			releaseAnyway(t, lock)
			continue
		}
		set, err := l.AcquireMany(t.Context(), []string{key + "a", key + "b"}, time.Minute, locco.RetryTimeout(patience), locco.RetryDelay(20*time.Millisecond))
		if errors.Is(err, locco.ErrHeld) {
			t.Errorf("AcquireMany of keys that nobody else wants = %v; want a set", err)
		}
		if err == nil {
			_ = set.Release(t.Context())
		}
	}
}
