package contract

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// callTimeout is the deadline of every call: a Backend's calls always have one.
const callTimeout = 10 * time.Second

// client makes calls of one backend for one case. A driver's error ends the
// case, so its methods belong on the case's own goroutine; the methods that
// begin with try only report it.
type client struct {
	measure
	t *testing.T
	b locco.Backend
}

func (c *client) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.t.Context(), callTimeout)
}

func (c *client) acquire(l locco.Lease) locco.Grant {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	g, err := c.b.Acquire(ctx, l)
	if err != nil {
		c.t.Fatalf("Acquire(%s) = %+v, %v; want no error", show(l.Key), g, err)
	}
	return g
}

func (c *client) extend(l locco.Lease) bool {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	ours, err := c.b.Extend(ctx, l)
	if err != nil {
		c.t.Fatalf("Extend(%s) = %v, %v; want no error", show(l.Key), ours, err)
	}
	return ours
}

func (c *client) release(key, token string) bool {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	ours, err := c.b.Release(ctx, key, token)
	if err != nil {
		c.t.Fatalf("Release(%s) = %v, %v; want no error", show(key), ours, err)
	}
	return ours
}

func (c *client) transfer(from string, to locco.Lease) locco.Grant {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	g, err := as[locco.Transferrer](c).Transfer(ctx, from, to)
	if err != nil {
		c.t.Fatalf("Transfer(%s) = %+v, %v; want no error", show(to.Key), g, err)
	}
	return g
}

func (c *client) acquireMany(ls []locco.Lease) (grants []locco.Grant, refused int) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	grants, refused, err := as[locco.ManyAcquirer](c).AcquireMany(ctx, ls)
	if err != nil {
		c.t.Fatalf("AcquireMany(%d leases) = %d grants, %d, %v; want no error", len(ls), len(grants), refused, err)
	}
	return grants, refused
}

func (c *client) extendMany(ls []locco.Lease) []locco.Verdict {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	verdicts := as[locco.ManyExtender](c).ExtendMany(ctx, ls)
	if len(verdicts) != len(ls) {
		c.t.Fatalf("ExtendMany(%d leases) = %d verdicts; want one a lease (%s)", len(ls), len(verdicts), ruleVerdicts)
	}
	return verdicts
}

// tryAcquire is acquire for any goroutine: an error counts as a refusal and
// fails the case at its end. An error that passes by itself is tried again.
func (c *client) tryAcquire(l locco.Lease) locco.Grant {
	c.t.Helper()
	g, err := retried(c, func(ctx context.Context, again bool) (locco.Grant, error) {
		l := l
		l.Again = l.Again || again
		return c.b.Acquire(ctx, l)
	})
	if err != nil {
		c.t.Errorf("Acquire(%s) = %+v, %v; want no error", show(l.Key), g, err)
		return locco.Grant{}
	}
	return g
}

// tryAcquireMany is acquireMany for any goroutine. It tells whether the set was
// granted.
func (c *client) tryAcquireMany(ls []locco.Lease) bool {
	c.t.Helper()
	refused, err := retried(c, func(ctx context.Context, again bool) (int, error) {
		ls := slices.Clone(ls)
		for i := range ls {
			ls[i].Again = ls[i].Again || again
		}
		_, refused, err := c.b.(locco.ManyAcquirer).AcquireMany(ctx, ls)
		return refused, err
	})
	if err != nil {
		c.t.Errorf("AcquireMany(%d leases) error = %v; want none", len(ls), err)
	}
	return err == nil && refused == -1
}

// retried repeats call, as core does, while the backend says that its error
// passes by itself, such as a serialization failure among racing transactions.
func retried[T any](c *client, call func(ctx context.Context, again bool) (T, error)) (answer T, err error) {
	for try := range 10 {
		ctx, cancel := c.context()
		answer, err = call(ctx, try > 0)
		cancel()
		if err == nil || !c.passes(err) {
			break
		}
		c.wait(c.step)
	}
	return answer, err
}

// tryRelease is release for any goroutine.
func (c *client) tryRelease(key, token string) bool {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	ours, err := c.b.Release(ctx, key, token)
	if err != nil {
		c.t.Errorf("Release(%s) = %v, %v; want no error", show(key), ours, err)
	}
	return ours && err == nil
}

// hold is a granted lease.
type hold struct {
	locco.Lease
	span
	fence int64
}

// take is acquire with a token of its own, of a key that must be free.
func (c *client) take(key string, ttl time.Duration) hold {
	c.t.Helper()
	return c.takeLease(newLease(key, ttl))
}

// takeFenced is take with a fence.
func (c *client) takeFenced(key string, ttl time.Duration) hold {
	c.t.Helper()
	l := newLease(key, ttl)
	l.Fenced = true
	return c.takeLease(l)
}

func (c *client) takeLease(l locco.Lease) hold {
	c.t.Helper()
	var g locco.Grant
	at := timed(func() { g = c.acquire(l) })
	if !g.OK {
		c.t.Fatalf("Acquire(%s) = %+v; want a grant (%s)", show(l.Key), g, ruleFree)
	}
	return hold{Lease: l, span: at, fence: g.Fence}
}

// takeMany takes all keys in one step, each in a lease of its own.
func (c *client) takeMany(keys []string, ttl time.Duration, fenced bool) []hold {
	c.t.Helper()
	holds := make([]hold, len(keys))
	var grants []locco.Grant
	var refused int
	leases := newLeases(keys, ttl)
	for i := range leases {
		leases[i].Fenced = fenced
	}
	at := timed(func() { grants, refused = c.acquireMany(leases) })
	if refused != -1 || len(grants) != len(leases) {
		c.t.Fatalf("AcquireMany(%d free keys) = %d grants, %d; want %d grants, -1 (%s)",
			len(keys), len(grants), refused, len(keys), ruleAllOrNone)
	}
	for i, g := range grants {
		if !g.OK {
			c.t.Fatalf("AcquireMany(%d free keys): grant %d = %+v; want it OK (%s)", len(keys), i, g, ruleAllOrNone)
		}
		holds[i] = hold{Lease: leases[i], span: at, fence: g.Fence}
	}
	return holds
}

func newLeases(keys []string, ttl time.Duration) []locco.Lease {
	leases := make([]locco.Lease, len(keys))
	for i, key := range keys {
		leases[i] = newLease(key, ttl)
	}
	return leases
}

// as returns the ability A of the backend. That it is there is also the subject
// of a case of its own.
func as[A any](c *client) A {
	c.t.Helper()
	a, ok := c.b.(A)
	if !ok {
		c.t.Fatalf("the backend %T is not a %v; want it, or a harness that declares it missing", c.b, reflect.TypeFor[A]())
	}
	return a
}

// show prints a key so that every byte can be told, but not a kilobyte of it.
func show(key string) string {
	const most = 60
	if len(key) > most {
		return fmt.Sprintf("%+q… (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%+q", key)
}
