package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
)

func proxied(t *testing.T) (*integration.Proxy, rueidis.Client, *integration.Node) {
	t.Helper()
	n := integration.SharedRedis(t, integration.Redis8)
	p := integration.StartProxy(t, n.Addr)
	c := n.Client(t, noRetry, func(o *rueidis.ClientOption) { o.InitAddress = []string{p.Addr} })
	return p, c, n
}

func TestProxySilence(t *testing.T) {
	t.Parallel()
	p, c, n := proxied(t)
	set(t, c, t.Name(), "1")
	p.Silence()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, c.B().Set().Key(t.Name()).Value("2").Build()).Error(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("SET through a silent proxy: %v; want no answer", err)
	}
	if v := get(t, n.Client(t), t.Name()); v != "1" {
		t.Errorf("GET = %q; want 1, as the command did not pass", v)
	}
	if p.Connections() == 0 {
		t.Error("Connections = 0; want the connection kept")
	}
	p.Resume()
	set(t, c, t.Name(), "3")
	if v := get(t, n.Client(t), t.Name()); v != "3" {
		t.Errorf("GET = %q; want 3", v)
	}
}

func TestProxyDropReply(t *testing.T) {
	t.Parallel()
	p, c, n := proxied(t)
	key := t.Name()
	dropped := p.DropReply(key)
	set(t, c, "another key", "v")
	select {
	case <-dropped:
		t.Fatal("the reply to another command was dropped")
	default:
	}
	if err := do(t, c, "SET", key, "v").Error(); err == nil {
		t.Error("SET without a reply: no error")
	}
	<-dropped
	if v := get(t, n.Client(t), key); v != "v" {
		t.Errorf("GET = %q; want v, as the command was applied", v)
	}
	set(t, c, key, "w")
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	p, c, _ := proxied(t)
	set(t, c, t.Name(), "v")
	p.Cut()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) { // the client has to notice
		if err := do(t, c, "GET", t.Name()).Error(); err == nil {
			break
		} else if time.Since(start) > 10*time.Second {
			t.Fatalf("GET after Cut: %v", err)
		}
	}
	p.Down()
	if err := do(t, c, "GET", t.Name()).Error(); err == nil {
		t.Error("GET through a proxy that is down: no error")
	}
	p.Up()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err := do(t, c, "GET", t.Name()).Error(); err == nil {
			break
		} else if time.Since(start) > 10*time.Second {
			t.Fatalf("GET after Up: %v", err)
		}
	}
	// A silent connection can be cut too.
	p.Silence()
	p.Cut()
	for start := time.Now(); p.Connections() > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("Connections after Cut = %d; want 0", p.Connections())
		}
	}
}
