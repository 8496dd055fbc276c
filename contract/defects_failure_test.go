package contract_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// failureDefects are about drivers' errors and contexts.
var failureDefects = []defect{
	{
		name:     "DriversErrorIsARefusal",
		caughtBy: []string{"Broken/FailsWithAnError"},
		harness:  func(h *contract.Harness) { h.Broken = func(*testing.T) locco.Backend { return newReference() } },
	},
	{
		name:     "DriversErrorIsTakenForHeld",
		caughtBy: []string{"Broken/FailsWithAnError", "Broken/KeepsTheCause"},
		harness: func(h *contract.Harness) {
			h.Broken = func(*testing.T) locco.Backend {
				return newFaulty(func(_ reference, f *faulty) {
					f.acquire = func(context.Context, locco.Lease) (locco.Grant, error) {
						return locco.Grant{}, fmt.Errorf("%w: %v", locco.ErrHeld, errUnreachable)
					}
				})
			}
		},
	},
	{
		name:     "DeadlineIsIgnored",
		caughtBy: []string{"Broken/ReturnsByTheDeadline"},
		alone:    true,
		harness: func(h *contract.Harness) {
			h.Broken = func(*testing.T) locco.Backend {
				return newFaulty(func(_ reference, f *faulty) {
					f.acquire = func(context.Context, locco.Lease) (locco.Grant, error) {
						time.Sleep(time.Hour)
						return locco.Grant{}, errUnreachable
					}
				})
			}
		},
	},
	{
		name:     "WatchIgnoresItsDeadline",
		caughtBy: []string{"Broken/WatchReturns"},
		alone:    true,
		harness: func(h *contract.Harness) {
			h.Broken = func(*testing.T) locco.Backend {
				return newFaulty(func(_ reference, f *faulty) {
					f.watch = func(context.Context, string) (<-chan struct{}, func(), error) {
						time.Sleep(time.Hour)
						return nil, nil, errUnreachable
					}
				})
			}
		},
	},
	{
		name:     "EndedContextBlocks",
		caughtBy: []string{"Context/EndedContextDoesNotBlock"},
		alone:    true,
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if ctx.Err() != nil {
					time.Sleep(time.Hour)
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "EndedContextIsARefusal",
		caughtBy: []string{"Context/EndedContextTellsTheTruth"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				ours, _ := r.Release(ctx, key, token)
				return ours, nil
			}
		},
	},
	{
		name:     "CanceledCallBreaksTheClient",
		caughtBy: []string{"Context/CanceledCallsDoNoHarm"},
		seed: func(r reference, f *faulty) {
			var broken sync.Once
			err := error(nil)
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if ctx.Err() != nil {
					broken.Do(func() { err = errDefect })
				}
				if err != nil {
					return locco.Grant{}, err
				}
				return r.Acquire(ctx, l)
			}
		},
	},
}
