package contract_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// engineDefects are those that a Locker on top of the backend must notice too,
// whatever the cases below it say.
var engineDefects = []defect{
	{
		name:     "EngineRejectsIt",
		caughtBy: []string{"Locker/NewAcceptsTheBackend"},
		seed:     func(_ reference, f *faulty) { f.validate = func() error { return errDefect } },
	},
	{
		name: "EngineKeysStayAfterRelease",
		caughtBy: []string{
			"Locker/AcquiresAndReleases", "Locker/WithLockFreesTheKey", "Locker/TakesSets", "Locker/CloseFreesTheKeys",
			"Locker/WaiterGetsTheReleasedKey",
		},
		seed: func(r reference, f *faulty) { f.release = r.Holds },
	},
	{
		name:     "EngineGetsHeldKeys",
		caughtBy: []string{"Locker/TryAcquireTellsHeld", "Locker/TryWithLockDoesNotRun", "Locker/SetLeavesNothingWhenOneIsHeld"},
		seed: func(_ reference, f *faulty) {
			f.acquire = func(context.Context, locco.Lease) (locco.Grant, error) {
				return locco.Grant{OK: true, Fence: time.Now().UnixMicro()}, nil
			}
			f.acquireMany = func(_ context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
				grants := make([]locco.Grant, len(ls))
				for i := range grants {
					grants[i] = locco.Grant{OK: true, Fence: time.Now().UnixMicro()}
				}
				return grants, -1, nil
			}
		},
	},
	{
		name:     "EnginePrefixIsCutOff",
		caughtBy: []string{"Locker/PrefixIsPartOfTheKey"},
		seed:     key(func(key string) string { return key[min(2, len(key)):] }),
	},
	{
		name:     "EngineExtensionsAddUp",
		caughtBy: []string{"Locker/ExtendSetsTheLease", "Locker/HoldAtLeastKeepsTheKey"},
		seed:     extendTo(func(ends time.Time, ttl time.Duration) time.Time { return ends.Add(ttl) }),
	},
	{
		name:     "EngineExtensionsDoNothing",
		caughtBy: []string{"Locker/AutoExtendKeepsTheKey", "Locker/ManyLocksAreExtendedTogether"},
		seed:     extendTo(func(ends time.Time, _ time.Duration) time.Time { return ends }),
	},
	{
		name:     "EngineExtensionsAreRefused",
		caughtBy: []string{"Locker/DetachedLockMovesToPeer", "Locker/AutoExtendKeepsTheKey"},
		seed: func(_ reference, f *faulty) {
			f.extend = func(context.Context, locco.Lease) (bool, error) { return false, nil }
		},
	},
	{
		name:     "EngineExtensionsIgnoreTheToken",
		caughtBy: []string{"Locker/StolenKeyIsNoticed"},
		seed: func(r reference, f *faulty) {
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				return do(ctx, r.store, func() bool { return r.live(l.Key) != nil })
			}
		},
	},
	{
		name:     "EngineChecksAreAlwaysTrue",
		caughtBy: []string{"Locker/CheckNoticesTheLoss"},
		seed: func(_ reference, f *faulty) {
			f.holds = func(context.Context, string, string) (bool, error) { return true, nil }
		},
	},
	{
		name:     "EngineVerdictsAreForTheFirst",
		caughtBy: []string{"Locker/ManyLocksAreExtendedTogether"},
		seed: manyExtend(func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict {
			verdicts := r.ExtendMany(ctx, ls)
			for i := range verdicts {
				verdicts[i] = verdicts[0]
			}
			return verdicts
		}),
	},
	{
		name:     "EngineLeasesEndHalfWay",
		caughtBy: []string{"Locker/LossIsKnownBeforeTheNextGrant", "Locker/WaiterGetsTheKeyAtTheLeasesEnd", "Locker/LockDelayKeepsTheKey"},
		seed:     ttl(func(d time.Duration) time.Duration { return d / 2 }),
	},
	{
		name:     "EngineLeasesNeverEnd",
		caughtBy: []string{"Locker/MaxHoldEndsTheLock", "Locker/WaiterGetsTheKeyAtTheLeasesEnd"},
		seed:     ttl(func(time.Duration) time.Duration { return time.Hour }),
	},
	{
		name:     "EngineWakesAreLost",
		caughtBy: []string{"Locker/WaiterIsWokenByRelease"},
		seed: watch(func(reference, context.Context, string) (*watching, func()) {
			return &watching{wake: make(chan struct{}, 1)}, func() {}
		}),
	},
	{
		name:     "EngineRefusedAttemptsQueueUp",
		caughtBy: []string{"Locker/CanceledWaiterLeavesNothing"},
		seed: func(r reference, f *faulty) {
			var queue sync.Map // by key: the lease that was refused last
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if err == nil && !g.OK {
					queue.Store(l.Key, l)
				}
				return g, err
			}
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				ours, err := r.Release(ctx, key, token)
				if l, ok := queue.LoadAndDelete(key); ours && ok {
					_, _ = r.Acquire(ctx, l.(locco.Lease))
				}
				return ours, err
			}
		},
	},
	{
		name:     "EngineFencesStayOnHandOver",
		caughtBy: []string{"Locker/WaitersOfOneLockerGetTheirTurn"},
		seed: func(r reference, f *faulty) {
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				to.Fenced = false
				g, err := r.Transfer(ctx, from, to)
				r.mu.Lock()
				defer r.mu.Unlock()
				g.Fence = r.fences[to.Key]
				return g, err
			}
		},
	},
	{
		name:     "EngineKeysAreCheckedThenSet",
		caughtBy: []string{"Locker/MutualExclusion"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				refused, err := do(ctx, r.store, func() bool { return r.refuses(l) })
				if refused || err != nil {
					return locco.Grant{}, err
				}
				pause()
				return do(ctx, r.store, func() locco.Grant { return r.put(l) })
			}
		},
	},
	{
		name:     "EngineSetsAreStoredWithoutALook",
		caughtBy: []string{"Locker/OverlappingSetsDoNotDeadlock", "Locker/SetLeavesNothingWhenOneIsHeld"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
			refused, err = do(ctx, r.store, func() int {
				for _, l := range ls {
					grants = append(grants, r.put(l))
				}
				return -1
			})
			return grants, refused, err
		}),
	},
	{
		name:     "EngineTakesAFailureForHeld",
		caughtBy: []string{"Locker/BrokenIsNotHeld"},
		harness: func(h *contract.Harness) {
			h.Broken = func(*testing.T) locco.Backend {
				return newFaulty(func(_ reference, f *faulty) {
					f.acquire = func(context.Context, locco.Lease) (locco.Grant, error) { return locco.Grant{}, nil }
					f.acquireMany = func(context.Context, []locco.Lease) ([]locco.Grant, int, error) { return nil, 0, nil }
				})
			}
		},
	},
}
