package contract

import (
	"context"
	"time"

	locco "github.com/locco-go/locco/core"
)

// The methods of this file check one answer each. What names the arguments in
// the failure, rule says why the answer is wanted.

func (c *client) wantAcquire(what string, l locco.Lease, want bool, rule string) locco.Grant {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	g, err := c.b.Acquire(ctx, l)
	if err != nil || g.OK != want {
		c.t.Errorf("Acquire(%s) = %+v, %v; want OK %v, <nil> (%s)", what, g, err, want, rule)
	}
	return g
}

func (c *client) wantExtend(what string, l locco.Lease, want bool, rule string) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	got, err := c.b.Extend(ctx, l)
	if err != nil || got != want {
		c.t.Errorf("Extend(%s) = %v, %v; want %v, <nil> (%s)", what, got, err, want, rule)
	}
}

func (c *client) wantRelease(what, key, token string, want bool, rule string) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	got, err := c.b.Release(ctx, key, token)
	if err != nil || got != want {
		c.t.Errorf("Release(%s) = %v, %v; want %v, <nil> (%s)", what, got, err, want, rule)
	}
}

func (c *client) wantHolds(what, key, token string, want bool, rule string) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	got, err := c.b.Holds(ctx, key, token)
	if err != nil || got != want {
		c.t.Errorf("Holds(%s) = %v, %v; want %v, <nil> (%s)", what, got, err, want, rule)
	}
}

func (c *client) wantTransfer(what, from string, to locco.Lease, want bool, rule string) locco.Grant {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	g, err := as[locco.Transferrer](c).Transfer(ctx, from, to)
	if err != nil || g.OK != want {
		c.t.Errorf("Transfer(%s) = %+v, %v; want OK %v, <nil> (%s)", what, g, err, want, rule)
	}
	return g
}

// wantNotAgain checks a call that takes a key which has its token already.
func (c *client) wantNotAgain(what string, call func(ctx context.Context) (granted bool, err error)) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	if granted, err := call(ctx); err == nil && granted || err != nil && !c.passes(err) {
		c.t.Errorf("%s = granted %v, %v; want neither a grant nor an error that stays (%s)", what, granted, err, ruleNotAgain)
	}
}

// passes tells whether the backend says that err passes by itself.
func (c *client) passes(err error) bool {
	r, ok := c.b.(locco.Retryer)
	return ok && r.Retryable(err)
}

// wantFree checks that nobody has key, by taking it and giving it back.
func (c *client) wantFree(key, rule string) {
	c.t.Helper()
	l := newLease(key, long)
	if g := c.wantAcquire("free key", l, true, rule); g.OK {
		c.wantRelease("holder's token", key, l.Token, true, ruleHolder)
	}
}

// wantHeld checks that a lease that has not ended is still in force.
func (c *client) wantHeld(l locco.Lease, rule string) {
	c.t.Helper()
	c.wantHolds("holder's token", l.Key, l.Token, true, rule)
	c.wantAcquire("held key", newLease(l.Key, long), false, rule)
}

// wantEnd checks that a lease of ttl on key, set by a call at that time, ends
// neither too early nor too late, and leaves the key free. It judges by when
// its calls were sent and answered, so that a busy machine does not matter. It
// may run on any goroutine.
func (c *client) wantEnd(key string, ttl time.Duration, at span) {
	c.t.Helper()
	for ; ; c.wait(c.step) {
		l := newLease(key, long)
		var g locco.Grant
		var err error
		look := timed(func() {
			ctx, cancel := c.context()
			defer cancel()
			g, err = c.b.Acquire(ctx, l)
		})
		if err != nil {
			c.t.Errorf("Acquire(%s) = %+v, %v; want no error (%s)", show(key), g, err, ruleExclusive)
			return
		}
		if g.OK {
			if ran := look.answered.Sub(at.sent); ran < ttl-c.early {
				c.t.Errorf("a lease of %v on %s ended after %v at most (%s)", ttl, show(key), ran, ruleTTL)
			}
			c.wantRelease("holder's token", key, l.Token, true, ruleHolder)
			return
		}
		if ran := look.sent.Sub(at.answered); ran > ttl+c.late {
			c.t.Errorf("a lease of %v on %s still runs after %v (%s)", ttl, show(key), ran, ruleTTL)
			return
		}
	}
}

// wantEnds is wantEnd for leases that one call set.
func (c *client) wantEnds(ls []locco.Lease, at span) {
	c.t.Helper()
	together(len(ls), func(i int) {
		c.t.Helper()
		c.wantEnd(ls[i].Key, ls[i].TTL, at)
	})
}

// passEnd waits until the lease of h has ended for certain, and touches
// nothing meanwhile: what is stored stays as it is.
func (c *client) passEnd(ttl time.Duration, at span) {
	c.t.Helper()
	c.wait(time.Until(at.answered.Add(ttl + c.late + time.Millisecond)))
}

// wantReturn runs call and checks that it returns within limit. If it does not,
// the case ends and leaves it behind.
func (c *client) wantReturn(what string, limit time.Duration, call func(), rule string) {
	c.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		c.t.Fatalf("%s has not returned within %v (%s)", what, limit, rule)
	}
}
