package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
)

// The tests of this file try out the servers, and what is done to them, with the
// driver alone.

func each(t *testing.T, test func(t *testing.T, r integration.Redis)) {
	t.Helper()
	for _, r := range integration.Redises() {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
}

func do(t *testing.T, c rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.Do(ctx, c.B().Arbitrary(args...).Build())
}

func get(t *testing.T, c rueidis.Client, key string) string {
	t.Helper()
	value, err := do(t, c, "GET", key).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Errorf("GET %s: %v", key, err)
	}
	return value
}

func set(t *testing.T, c rueidis.Client, key, value string) {
	t.Helper()
	if err := do(t, c, "SET", key, value).Error(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

func connect(t *testing.T, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableCache = true
	c, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// noRetry makes a failure visible.
func noRetry(o *rueidis.ClientOption) { o.DisableRetry = true }

func TestServerShared(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		a, b := integration.SharedRedis(t, r), integration.SharedRedis(t, r)
		if a.Addr != b.Addr {
			t.Errorf("SharedRedis = %s, then %s; want one server", a.Addr, b.Addr)
		}
		set(t, a.Client(t), t.Name(), "v")
		if v := get(t, b.Client(t), t.Name()); v != "v" {
			t.Errorf("GET = %q; want what was set", v)
		}
		info, err := do(t, a.Client(t), "INFO", "server").ToString()
		if err != nil {
			t.Fatalf("INFO: %v", err)
		}
		want := map[integration.Redis]string{
			integration.Redis7:  "redis_version:7.",
			integration.Redis8:  "redis_version:8.",
			integration.Valkey8: "valkey_version:8.",
		}[r]
		if !strings.Contains(info, want) {
			t.Errorf("INFO of %s lacks %q:\n%s", r, want, info)
		}
	})
}

func TestServerPause(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		n := integration.StartRedis(t, r)
		c := n.Client(t, noRetry)
		set(t, c, "k", "v")
		n.Pause(t)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := c.Do(ctx, c.B().Get().Key("k").Build()).Error(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("GET on a paused server: %v; want no answer", err)
		}
		n.Unpause(t)
		if v := get(t, n.Client(t), "k"); v != "v" {
			t.Errorf("GET after the pause = %q; want v", v)
		}
	})
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		n := integration.StartRedis(t, r)
		set(t, n.Client(t), "k", "v")
		n.Restart(t)
		if v := get(t, n.Client(t), "k"); v != "" {
			t.Errorf("GET after a restart = %q; want nothing", v)
		}
		n.Stop(t)
		if _, err := n.Do(t.Context(), "PING"); err == nil {
			t.Error("PING of a stopped server: no error")
		}
		n.Start(t)
	})
}

func TestServerKillClientsAndFlushScripts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		n := integration.StartRedis(t, r)
		c := n.Client(t, noRetry)
		sha, err := do(t, c, "SCRIPT", "LOAD", "return 1").ToString()
		if err != nil {
			t.Fatalf("SCRIPT LOAD: %v", err)
		}
		n.FlushScripts(t)
		if err := do(t, c, "EVALSHA", sha, "0").Error(); err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
			t.Errorf("EVALSHA after FlushScripts: %v; want NOSCRIPT", err)
		}

		subscribed := n.Client(t, noRetry)
		ended := make(chan error, 1)
		confirmed := make(chan struct{})
		go func() {
			ctx := rueidis.WithOnSubscriptionHook(t.Context(), func(rueidis.PubSubSubscription) { close(confirmed) })
			ended <- subscribed.Receive(ctx, subscribed.B().Subscribe().Channel("c").Build(), func(rueidis.PubSubMessage) {})
		}()
		<-confirmed
		if killed := n.KillClients(t); killed < 2 {
			t.Errorf("KillClients = %d; want 2 at least", killed)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Error("Receive on a killed connection: no error")
			}
		case <-time.After(10 * time.Second):
			t.Error("Receive did not end with its connection")
		}
	})
}

func TestServerArguments(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		n := integration.StartRedis(t, r, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
		c := n.Client(t)
		value := strings.Repeat("v", 1<<20)
		var err error
		for _, key := range []string{"1", "2", "3", "4", "5"} {
			if err = do(t, c, "SET", key, value).Error(); err != nil {
				break
			}
		}
		if err == nil || !strings.HasPrefix(err.Error(), "OOM") {
			t.Errorf("SET on a full server: %v; want OOM", err)
		}
	})
}

func TestServerReplicated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartReplicated(t, r)
		c := s.Primary.Client(t)
		wait := func(timeout string) int64 {
			t.Helper()
			rs := c.DoMulti(t.Context(),
				c.B().Set().Key("k").Value("v").Build(),
				c.B().Arbitrary("WAIT", "1", timeout).Build())
			acknowledged, err := rs[1].AsInt64()
			if err != nil {
				t.Fatalf("WAIT: %v", err)
			}
			return acknowledged
		}
		if n := wait("5000"); n != 1 {
			t.Errorf("WAIT = %d; want 1", n)
		}
		if err := do(t, s.Replica.Client(t), "SET", "k", "v").Error(); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("SET on the replica: %v; want READONLY", err)
		}
		s.Replica.Pause(t)
		if n := wait("100"); n != 0 {
			t.Errorf("WAIT with the replica paused = %d; want 0", n)
		}
		s.Replica.Unpause(t)
		s.WaitLinked(t)
	})
}

func TestServerSentinel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartSentinel(t, r)
		c := connect(t, s.Option())
		set(t, c, "k", "v")
		s.Primary.Pause(t)
		now := s.WaitFailover(t, s.Primary)
		if now != s.Replica {
			t.Errorf("WaitFailover = %s; want %s", now.Name, s.Replica.Name)
		}
		set(t, connect(t, s.Option()), "k", "w")
		if v := get(t, now.Client(t), "k"); v != "w" {
			t.Errorf("GET on the new primary = %q; want w", v)
		}
		s.Primary.Unpause(t)
	})
}

func TestServerCluster(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartCluster(t, r)
		c := connect(t, s.Option())
		owners := map[int]bool{}
		for _, key := range []string{"a", "b", "c", "d", "e", "{a}:2"} {
			set(t, c, key, "v-"+key)
			owners[s.Owner(t, key)] = true
		}
		if len(owners) != 3 {
			t.Errorf("the keys are on nodes %v; want all three", owners)
		}
		n := s.Nodes[s.Owner(t, "a")]
		if err := do(t, n.Client(t), "MGET", "a", "b").Error(); err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
			t.Errorf("MGET of two slots: %v; want CROSSSLOT", err)
		}
		to := (s.Owner(t, "a") + 1) % 3
		s.MoveSlot(t, "a", to)
		if owner := s.Owner(t, "a"); owner != to {
			t.Errorf("Owner after MoveSlot = %d; want %d", owner, to)
		}
		for _, key := range []string{"a", "b", "{a}:2"} {
			if v := get(t, c, key); v != "v-"+key {
				t.Errorf("GET %s after MoveSlot = %q; want v-%s", key, v, key)
			}
		}
		s.Nodes[to].Restart(t)
		s.WaitOK(t)
		if v := get(t, c, "a"); v != "" {
			t.Errorf("GET after the restart of its node = %q; want nothing", v)
		}
	})
}
