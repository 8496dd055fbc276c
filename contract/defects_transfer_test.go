package contract_test

import (
	"context"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

// transferDefects are about handing a key over.
var transferDefects = []defect{
	{
		name:     "TransferIgnoresFrom",
		caughtBy: []string{"Transfer/ForeignTokenIsRefused", "Transfer/AfterTransferIsRefused", "Transfer/OtherKeysStay"},
		seed:     transferIf(func(r reference, _ string, to locco.Lease) bool { return r.live(to.Key) != nil }, nil),
	},
	{
		name:     "TransferCreates",
		caughtBy: []string{"Transfer/AbsentKeyIsNotCreated", "Transfer/AfterReleaseIsRefused", "Expiry/TransferIsRefused"},
		seed: transferIf(func(r reference, from string, to locco.Lease) bool {
			return r.live(to.Key) == nil || r.heldBy(to.Key, from) != nil
		}, nil),
	},
	{
		name:     "TransferKeepsTheOldLease",
		caughtBy: []string{"Transfer/SetsANewLease"},
		seed: transferIf(ours, func(r reference, to *locco.Lease) {
			to.TTL = time.Until(r.leases[to.Key].ends)
		}),
	},
	{
		name:     "TransferKeepsTheOldToken",
		caughtBy: []string{"Transfer/ReplacesTheHolder", "Transfer/NewTokenCanDoAll", "Transfer/LostAnswerIsFoundAgain"},
		seed: transferIf(ours, func(r reference, to *locco.Lease) {
			to.Token = r.leases[to.Key].token
		}),
	},
	{
		name:     "OldTokenStaysValidAfterTransfer",
		caughtBy: []string{"Transfer/OldTokenCanDoNothing", "Transfer/ReplacesTheHolder"},
		seed: func(r reference, f *faulty) {
			var heirs sync.Map // token of the heir by token of the holder before
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				g, err := r.Transfer(ctx, from, to)
				if g.OK {
					heirs.Store(from, to.Token)
				}
				return g, err
			}
			heir := func(token string) string {
				if heir, ok := heirs.Load(token); ok {
					return heir.(string)
				}
				return token
			}
			f.holds = func(ctx context.Context, key, token string) (bool, error) { return r.Holds(ctx, key, heir(token)) }
			f.release = func(ctx context.Context, key, token string) (bool, error) { return r.Release(ctx, key, heir(token)) }
		},
	},
	{
		name:     "RefusedTransferSetsTheLease",
		caughtBy: []string{"Transfer/RefusalChangesNothing"},
		seed: func(r reference, f *faulty) {
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				g, err := r.Transfer(ctx, from, to)
				if present := r.leases[to.Key]; err == nil && !g.OK && present != nil {
					present.ends = time.Now().Add(to.TTL)
				}
				return g, err
			}
		},
	},
}

func ours(r reference, from string, to locco.Lease) bool { return r.heldBy(to.Key, from) != nil }

// transferIf seeds a transfer with a condition of its own, or one that stores
// something else.
func transferIf(cond func(r reference, from string, to locco.Lease) bool, change func(r reference, to *locco.Lease)) func(reference, *faulty) {
	return func(r reference, f *faulty) {
		f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
			return do(ctx, r.store, func() locco.Grant {
				if !cond(r, from, to) {
					return locco.Grant{}
				}
				if change != nil {
					change(r, &to)
				}
				return r.put(to)
			})
		}
	}
}
