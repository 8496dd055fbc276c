package contract_test

import (
	"context"
	"time"

	locco "github.com/locco-go/locco/core"
)

// leaseDefects are about the end of a lease.
var leaseDefects = []defect{
	{
		name:     "TTLInSeconds",
		caughtBy: []string{"Expiry/FreesTheKey", "Expiry/OddMilliseconds", "Expiry/OneMillisecond"},
		seed:     ttl(func(d time.Duration) time.Duration { return d.Truncate(time.Second) }),
	},
	{
		name:     "TTLRoundedUpToTenMilliseconds",
		caughtBy: []string{"Expiry/OddMilliseconds", "Expiry/OneMillisecond"},
		seed: ttl(func(d time.Duration) time.Duration {
			return (d + 9*time.Millisecond).Truncate(10 * time.Millisecond)
		}),
	},
	{
		name:     "LeaseEndsAMillisecondEarly",
		caughtBy: []string{"Expiry/FreesTheKey", "Expiry/OneMillisecond"},
		seed:     ttl(func(d time.Duration) time.Duration { return d - time.Millisecond }),
	},
	{
		name:     "LeaseNeverEnds",
		caughtBy: []string{"Expiry/FreesTheKey", "ManyAcquire/EndedLeasesAreFree"},
		seed:     ttl(func(time.Duration) time.Duration { return time.Hour }),
	},
	{
		name:     "TTLIsA32BitNumberOfMilliseconds",
		caughtBy: []string{"Expiry/YearsAreKept", "Left/OfYears"},
		seed: ttl(func(d time.Duration) time.Duration {
			return time.Duration(int32(d.Milliseconds())) * time.Millisecond
		}),
	},
	{
		name: "EndedLeaseCountsUntilSwept",
		caughtBy: []string{
			"Expiry/HoldsIsFalse", "Expiry/ExtendIsRefused", "Expiry/ReleaseIsFalse", "Expiry/TransferIsRefused",
			"Concurrency/OneWinnerAfterExpiry",
		},
		seed: func(r reference, f *faulty) {
			// Only an Acquire looks at the time.
			unswept := func(key, token string) bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				l := r.leases[key]
				if l != nil && l.token == token && !time.Now().Before(l.ends) {
					l.ends = time.Now().Add(time.Minute)
				}
				return l != nil && l.token == token
			}
			f.holds = func(_ context.Context, key, token string) (bool, error) { return unswept(key, token), nil }
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				unswept(l.Key, l.Token)
				return r.Extend(ctx, l)
			}
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				unswept(key, token)
				return r.Release(ctx, key, token)
			}
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				unswept(to.Key, from)
				return r.Transfer(ctx, from, to)
			}
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				r.mu.Lock()
				ended := r.leases[l.Key] != nil && r.live(l.Key) == nil
				r.mu.Unlock()
				if ended {
					pause() // the take-over of an ended lease is not atomic
					return do(ctx, r.store, func() locco.Grant { return r.put(l) })
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "LeftInTheWrongUnit",
		caughtBy: []string{"Left/IsWhatTheLeaseStillRuns", "Left/OfYears"},
		seed:     leftIs(func(g locco.Grant, _ *stored) time.Duration { return g.Left / time.Millisecond }),
	},
	{
		name:     "LeftIsTheTTLAskedFor",
		caughtBy: []string{"Left/IsWhatTheLeaseStillRuns", "Left/FollowsAnExtension"},
		seed:     leftIs(func(locco.Grant, *stored) time.Duration { return time.Minute }),
	},
	{
		name:     "LeftForgetsExtensions",
		caughtBy: []string{"Left/FollowsAnExtension"},
		seed: func(r reference, f *faulty) {
			granted := map[string]time.Time{}
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if g.OK {
					granted[l.Key] = time.Now().Add(l.TTL)
				} else if l.WantLeft {
					g.Left = time.Until(granted[l.Key])
				}
				return g, err
			}
		},
	},
	{
		name:     "LeftIsThatOfTheFirstGrant",
		caughtBy: []string{"Left/FollowsTheNextGrant"},
		seed: func(r reference, f *faulty) {
			first := map[string]time.Time{}
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if _, known := first[l.Key]; g.OK && !known {
					first[l.Key] = time.Now().Add(l.TTL)
				} else if !g.OK && l.WantLeft {
					g.Left = time.Until(first[l.Key])
				}
				return g, err
			}
		},
	},
	{
		name:     "LeftIsToldUnasked",
		caughtBy: []string{"Left/IsZeroWhenNotAsked"},
		seed:     leftIs(func(_ locco.Grant, present *stored) time.Duration { return time.Until(present.ends) }),
	},
}

// ttl seeds a defect in how long leases are stored.
func ttl(change func(time.Duration) time.Duration) func(reference, *faulty) {
	return func(_ reference, f *faulty) { f.rewrite(func(l *locco.Lease) { l.TTL = change(l.TTL) }) }
}

// leftIs seeds a defect in what a refusal tells about the present lease.
func leftIs(change func(g locco.Grant, present *stored) time.Duration) func(reference, *faulty) {
	return func(r reference, f *faulty) {
		f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
			g, err := r.Acquire(ctx, l)
			if err == nil && !g.OK {
				g.Left = change(g, r.leases[l.Key])
			}
			return g, err
		}
	}
}
