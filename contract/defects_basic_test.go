package contract_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

// basicDefects are about taking, asking and giving back.
var basicDefects = []defect{
	{
		name:     "AcquireStealsHeldKeys",
		caughtBy: []string{"Acquire/HeldKeyIsRefused"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				return do(ctx, r.store, func() locco.Grant { return r.put(l) })
			}
		},
	},
	{
		name:     "RefusalIsAnError",
		caughtBy: []string{"Acquire/HeldKeyIsRefused"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if err == nil && !g.OK {
					err = locco.ErrHeld
				}
				return g, err
			}
		},
	},
	{
		name:     "RefusedAttemptSetsTheLease",
		caughtBy: []string{"Acquire/RefusalChangesNothing", "Again/RefusalWithoutAgainChangesNothing"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if present := r.leases[l.Key]; err == nil && !g.OK {
					present.ends = time.Now().Add(l.TTL)
				}
				return g, err
			}
		},
	},
	{
		name:     "GrantIsNotStored",
		caughtBy: []string{"Acquire/FreeKeyIsGranted"},
		seed: func(_ reference, f *faulty) {
			f.acquire = func(context.Context, locco.Lease) (locco.Grant, error) { return locco.Grant{OK: true}, nil }
		},
	},
	{
		name:     "OneLockForAllKeys",
		caughtBy: []string{"Acquire/KeysAreIndependent", "Concurrency/KeysAreIndependent"},
		seed:     func(_ reference, f *faulty) { f.rewrite(func(l *locco.Lease) { l.Key = "lock" }) },
	},
	{
		name: "EachClientHasItsStore",
		caughtBy: []string{
			"Acquire/PeerSeesTheLease", "Release/PeerCan", "Extend/PeerCan", "Expiry/PeerTakesTheKey", "Transfer/PeerCan",
			"ManyAcquire/PeerSeesTheLeases", "ManyExtend/PeerCan", "Fencing/GrowsAcrossClients",
		},
		peer: func(reference, *faulty) locco.Backend { return newReference() },
	},
	{
		name:     "ReleaseIgnoresToken",
		caughtBy: []string{"Release/ForeignTokenIsRefused", "Release/OldTokenCannotFreeNextGrant", "Expiry/OldTokenCannotTouchNextGrant"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, _ string) (bool, error) {
				return do(ctx, r.store, func() bool {
					held := r.live(key) != nil
					r.free(key)
					return held
				})
			}
		},
	},
	{
		name:     "ReleaseIsAlwaysTrue",
		caughtBy: []string{"Release/AbsentKeyIsFalse", "Release/TwiceIsFalse", "Expiry/ReleaseIsFalse"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				_, err := r.Release(ctx, key, token)
				return err == nil, err
			}
		},
	},
	{
		name:     "AbsentKeyIsAnError",
		caughtBy: []string{"Release/AbsentKeyIsFalse", "Holds/AbsentKeyIsFalse", "Extend/AbsentKeyIsNotCreated"},
		seed: func(r reference, f *faulty) {
			absent := func(key string) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.live(key) == nil {
					return fmt.Errorf("key %q: %w", key, errDefect)
				}
				return nil
			}
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				if err := absent(key); err != nil {
					return false, err
				}
				return r.Release(ctx, key, token)
			}
			f.holds = func(ctx context.Context, key, token string) (bool, error) {
				if err := absent(key); err != nil {
					return false, err
				}
				return r.Holds(ctx, key, token)
			}
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				if err := absent(l.Key); err != nil {
					return false, err
				}
				return r.Extend(ctx, l)
			}
		},
	},
	{
		name:     "ReleasedKeyStaysUntilItsLeaseEnds",
		caughtBy: []string{"Release/FreesTheKey", "Release/TwiceIsFalse"},
		seed: func(r reference, f *faulty) {
			f.release = r.Holds
		},
	},
	{
		name:     "ReleaseClearsTheStore",
		caughtBy: []string{"Release/OtherKeysStay"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				return do(ctx, r.store, func() bool {
					ours := r.heldBy(key, token) != nil
					if ours {
						clear(r.leases)
					}
					return ours
				})
			}
		},
	},
	{
		name:     "HoldsIsTrueForAnyHolder",
		caughtBy: []string{"Holds/OnlyTheHolder"},
		seed: func(r reference, f *faulty) {
			f.holds = func(ctx context.Context, key, _ string) (bool, error) {
				return do(ctx, r.store, func() bool { return r.live(key) != nil })
			}
		},
	},
	{
		name:     "HoldsRenewsTheLease",
		caughtBy: []string{"Holds/ChangesNothing"},
		seed: func(r reference, f *faulty) {
			f.holds = func(ctx context.Context, key, token string) (bool, error) {
				return r.Extend(ctx, locco.Lease{Key: key, Token: token, TTL: time.Minute})
			}
		},
	},
	{
		name:     "HoldsAnswersFromAClientsCache",
		caughtBy: []string{"Holds/AsksTheStore"},
		seed: func(r reference, f *faulty) {
			var cache sync.Map
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if g.OK {
					cache.Store(l.Key, l.Token)
				}
				return g, err
			}
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				cache.CompareAndDelete(key, token)
				return r.Release(ctx, key, token)
			}
			f.holds = func(_ context.Context, key, token string) (bool, error) {
				held, _ := cache.Load(key)
				return held == token, nil
			}
		},
		peer: func(r reference, _ *faulty) locco.Backend { return r },
	},
	{
		name:     "HoldsIsTrueAfterRelease",
		caughtBy: []string{"Holds/AfterReleaseIsFalse"},
		seed: func(r reference, f *faulty) {
			var seen sync.Map
			f.holds = func(ctx context.Context, key, token string) (bool, error) {
				if ours, err := r.Holds(ctx, key, token); ours || err != nil {
					return ours, err
				}
				_, released := seen.Load(token)
				return released, nil
			}
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				seen.Store(token, true)
				return r.Release(ctx, key, token)
			}
		},
	},
}

var errDefect = errors.New("seeded defect")
