package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// lifetime ends while a reply is kept back: a connection that is older when a call wants
// it is not used any more, and the one opened in its place lasts for so long.
const lifetime = 300 * time.Millisecond

// The clients that send a write twice, or might.
var retryClients = []struct {
	name   string
	option func(*rueidis.ClientOption)
}{
	{"Plain", func(*rueidis.ClientOption) {}},
	{"Pipelining", func(o *rueidis.ClientOption) { o.AlwaysPipelining = true }},
	{"Lifetime", func(o *rueidis.ClientOption) { o.ConnLifetime = lifetime }},
	{"LifetimePipelining", func(o *rueidis.ClientOption) { o.ConnLifetime, o.AlwaysPipelining = lifetime, true }},
	{"LifetimePipeliningNoRetry", func(o *rueidis.ClientOption) {
		o.ConnLifetime, o.AlwaysPipelining, o.DisableRetry = lifetime, true, true
	}},
	{"LifetimePool", func(o *rueidis.ClientOption) { o.ConnLifetime, o.DisableAutoPipelining = lifetime, true }},
}

// How the connection ends whose reply is kept back. Each returns at once.
var retryEnds = []struct {
	name string
	end  func(h *integration.Held)
}{
	{"Cut", func(h *integration.Held) { <-h.Applied; h.Cut() }},
	// The driver says a last thing on a connection whose lifetime has ended, and waits for
	// the answer, a second long.
	{"CutAtTheEnd", func(h *integration.Held) {
		select {
		case <-h.More:
		case <-time.After(2 * lifetime): // a connection without a lifetime, or one that says nothing
		}
		h.Cut()
	}},
	{"Silent", func(*integration.Held) {}},
}

// retryOps take keys of their own, whose names contain key. They answer whether all were
// granted.
var retryOps = []struct {
	name string
	op   func(ctx context.Context, b *redis.Backend, key string) (ok bool, err error)
}{
	{"Acquire", func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		g, err := b.Acquire(ctx, locco.Lease{Key: key, Token: "own", TTL: time.Minute, WantLeft: true})
		return g.OK, err
	}},
	{"AcquireFenced", func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		g, err := b.Acquire(ctx, locco.Lease{Key: key, Token: "own", TTL: time.Minute, Fenced: true})
		return g.OK, err
	}},
	{"Transfer", func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		g, err := b.Transfer(ctx, "from", locco.Lease{Key: key, Token: "own", TTL: time.Minute, Fenced: true})
		return g.OK, err
	}},
	{"AcquireMany", func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		_, refused, err := b.AcquireMany(ctx, []locco.Lease{
			{Key: key + "a", Token: "own", TTL: time.Minute},
			{Key: key + "b", Token: "own b", TTL: time.Minute},
		})
		return refused < 0, err
	}},
	{"AcquireManyFenced", func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		_, refused, err := b.AcquireMany(ctx, []locco.Lease{
			{Key: key + "a", Token: "own", TTL: time.Minute, Fenced: true},
			{Key: key + "b", Token: "own b", TTL: time.Minute, Fenced: true},
		})
		return refused < 0, err
	}},
}

// spec 2.6: whatever the driver does when a connection ends before the answer to a write
// that was applied, our own grant is never refused: it is granted, or an error that
// leaves it open.
func TestRueidisSendsTwice(t *testing.T) {
	t.Parallel()
	n := integration.SharedRedis(t, integration.Redis8)
	admin := n.Client(t)
	known := redis.New(admin)
	for _, o := range retryOps { // so that what is lost is the answer of a script that the server knows
		_, _ = o.op(t.Context(), known, t.Name()+":known:"+o.name)
	}
	for _, c := range retryClients {
		for _, e := range retryEnds {
			for _, o := range retryOps {
				t.Run(fmt.Sprintf("%s/%s/%s", c.name, e.name, o.name), func(t *testing.T) {
					t.Parallel()
					key := t.Name()
					set(t, admin, key, "from")
					if !strings.HasPrefix(o.name, "Transfer") {
						_ = do(t, admin, "DEL", key)
					}
					proxy := integration.StartProxy(t, n.Addr)
					option := rueidis.ClientOption{InitAddress: []string{proxy.Addr}, ForceSingleClient: true, DisableCache: true}
					c.option(&option)
					client, err := rueidis.NewClient(option)
					if err != nil {
						t.Fatalf("connect: %v", err)
					}
					t.Cleanup(client.Close)
					held := proxy.HoldReply(key)
					ended := make(chan struct{})
					go func() { defer close(ended); e.end(held) }()

					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					b := redis.New(client)
					ok, err := o.op(ctx, b, key)
					<-ended
					select {
					case <-held.Applied:
					default:
						t.Fatalf("no reply was lost")
					}
					if !ok && err == nil {
						t.Errorf("our own grant is refused")
					}
					if err != nil && (errors.Is(err, locco.ErrInvalid) || !b.Retryable(err) && !errors.Is(err, context.DeadlineExceeded)) {
						t.Errorf("error = %v; want one that passes", err)
					}
				})
			}
		}
	}
}
