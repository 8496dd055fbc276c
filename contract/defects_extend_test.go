package contract_test

import (
	"context"
	"errors"
	"time"

	locco "github.com/locco-go/locco/core"
)

// extendDefects are about extensions and about attempts that are repeated.
var extendDefects = []defect{
	{
		name: "ExtendRecreates",
		caughtBy: []string{
			"Extend/AbsentKeyIsNotCreated", "Extend/AfterReleaseIsNotCreated", "Extend/ReadsKeyTokenAndTTLOnly",
			"Expiry/ExtendIsRefused", "ManyExtend/NothingIsCreated",
		},
		seed: func(r reference, f *faulty) {
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				l.Again, l.Fenced = true, false
				g, err := r.Acquire(ctx, l)
				return g.OK, err
			}
		},
	},
	{
		name:     "ExtendIgnoresToken",
		caughtBy: []string{"Extend/ForeignTokenIsRefused", "Extend/OldTokenCannotTouchNextGrant"},
		seed: func(r reference, f *faulty) {
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				return do(ctx, r.store, func() bool {
					present := r.live(l.Key)
					if present != nil {
						present.ends = time.Now().Add(l.TTL)
					}
					return present != nil
				})
			}
		},
	},
	{
		name:     "ExtendAddsToTheLease",
		caughtBy: []string{"Extend/CountsFromNow", "Extend/Shortens"},
		seed:     extendTo(func(ends time.Time, ttl time.Duration) time.Time { return ends.Add(ttl) }),
	},
	{
		name:     "ExtendOnlyLengthens",
		caughtBy: []string{"Extend/Shortens"},
		seed: extendTo(func(ends time.Time, ttl time.Duration) time.Time {
			if now := time.Now().Add(ttl); now.After(ends) {
				return now
			}
			return ends
		}),
	},
	{
		name:     "ExtendDoesNothing",
		caughtBy: []string{"Extend/Lengthens", "ManyExtend/EachKeyHasItsLease"},
		seed:     extendTo(func(ends time.Time, _ time.Duration) time.Time { return ends }),
	},
	{
		name:     "ExtendRefusesTheHolder",
		caughtBy: []string{"Extend/HolderCan", "ManyExtend/HoldersCan", "ManyExtend/OneKey"},
		seed: func(_ reference, f *faulty) {
			f.extend = func(context.Context, locco.Lease) (bool, error) { return false, nil }
		},
	},
	{
		name:     "TimerOfAGrantFreesTheNextOne",
		caughtBy: []string{"Extend/Lengthens"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if g.OK {
					time.AfterFunc(l.TTL, func() {
						r.mu.Lock()
						defer r.mu.Unlock()
						delete(r.leases, l.Key)
					})
				}
				return g, err
			}
		},
	},
	{
		name:     "AgainIsIgnored",
		caughtBy: []string{"Again/OwnTokenIsGranted", "Again/ThroughPeer", "Transfer/LostAnswerIsFoundAgain", "ManyAcquire/Again"},
		seed: func(_ reference, f *faulty) {
			f.rewrite(func(l *locco.Lease) { l.Again = false })
		},
	},
	{
		name:     "AgainStealsForeignKeys",
		caughtBy: []string{"Again/ForeignTokenIsRefused", "Again/EndedLeaseIsGranted"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if l.Again {
					return do(ctx, r.store, func() locco.Grant { return r.put(l) })
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "OwnTokenIsAlwaysAGrant",
		caughtBy: []string{"Again/OwnTokenWithoutAgainIsRefused", "ManyAcquire/OwnTokenWithoutAgainIsRefused", "Concurrency/OneGrantOfAToken"},
		seed: func(_ reference, f *faulty) {
			f.rewrite(func(l *locco.Lease) { l.Again = true })
		},
	},
	{
		name:     "OwnTokenIsAnErrorThatStays",
		caughtBy: []string{"Again/OwnTokenWithoutAgainIsRefused", "Again/RefusalWithoutAgainChangesNothing", "Concurrency/OneGrantOfAToken"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if ours, err := r.Holds(ctx, l.Key, l.Token); ours && !l.Again {
					return locco.Grant{}, errors.Join(err, errors.New("duplicate token"))
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "AgainKeepsTheOldLease",
		caughtBy: []string{"Again/SetsTheLeaseAnew"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if ours, err := r.Holds(ctx, l.Key, l.Token); l.Again && ours {
					return locco.Grant{OK: true}, err
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "AgainNeedsAStoredToken",
		caughtBy: []string{"Again/FreeKeyIsGranted", "Again/EndedLeaseIsGranted"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if l.Again {
					ours, err := r.Extend(ctx, l)
					return locco.Grant{OK: ours}, err
				}
				return r.Acquire(ctx, l)
			}
		},
	},
}

// extendTo seeds an extension that computes the end of the lease in its own way.
func extendTo(end func(ends time.Time, ttl time.Duration) time.Time) func(r reference, f *faulty) {
	return func(r reference, f *faulty) {
		f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
			return do(ctx, r.store, func() bool {
				present := r.heldBy(l.Key, l.Token)
				if present != nil {
					present.ends = end(present.ends, l.TTL)
				}
				return present != nil
			})
		}
	}
}
