package contract_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// abilityDefects are about what the harness declares.
var abilityDefects = []defect{
	{
		name:     "AbilitiesAreMissingUndeclared",
		caughtBy: declared("Fencer", "Left", "Immediate", "Watcher", "Transferrer", "ManyAcquirer", "ManyExtender", "Retryer", "Validator"),
		wrap:     func(f *faulty) locco.Backend { return bare{f} },
	},
	{
		name:     "AbilitiesRefuseUndeclared",
		caughtBy: declared("Fencer", "Left", "Immediate", "Watcher", "Transferrer", "ManyAcquirer", "ManyExtender"),
		wrap:     func(f *faulty) locco.Backend { return refusing{bare{f}} },
	},
	{
		name:     "AbilitiesAreThereThoughDeclaredMissing",
		caughtBy: declared("Fencer", "Left", "Immediate", "Watcher", "Transferrer", "ManyAcquirer", "ManyExtender", "Retryer", "Validator"),
		harness:  func(h *contract.Harness) { *h = without(*h) },
	},
	{
		name:     "WatchHasTheWrongSignature",
		caughtBy: declared("Watcher"),
		wrap:     func(f *faulty) locco.Backend { return wrongWatch{f} },
	},
	{
		name:     "HarnessMakesNoBackend",
		caughtBy: []string{"Acquire/FreeKeyIsGranted"},
		harness:  func(h *contract.Harness) { h.New = func(*testing.T) locco.Backend { return nil } },
	},
	{
		name:     "HarnessMakesNoPeer",
		caughtBy: []string{"Acquire/FreeKeyIsGranted"},
		harness: func(h *contract.Harness) {
			h.Peer = func(*testing.T, locco.Backend) locco.Backend { return nil }
		},
	},
	{
		name:     "HarnessMakesNoBrokenBackend",
		caughtBy: []string{"Broken/FailsWithAnError"},
		harness:  func(h *contract.Harness) { h.Broken = func(*testing.T) locco.Backend { return nil } },
	},
	{
		name:     "HarnessRepeatsKeys",
		caughtBy: []string{"ManyAcquire/FreeKeysAreGranted"},
		harness: func(h *contract.Harness) {
			h.Keys = func(unique string, n int) []string { return slices.Repeat([]string{unique}, n) }
		},
	},
	{
		name:     "KeysDeclaredInvalidAreTaken",
		caughtBy: []string{"Keys/Odd", "Keys/OddAndFenced"},
		harness: func(h *contract.Harness) {
			h.InvalidKey = func(key string, _ bool) bool { return strings.Contains(key, "}") }
		},
	},
	{
		name:     "NilIsRetryable",
		caughtBy: []string{"Retryer/OddErrorsAreHarmless"},
		seed:     func(_ reference, f *faulty) { f.retryable = func(error) bool { return true } },
	},
	{
		name:     "RetryableReadsTheErrorsText",
		caughtBy: []string{"Retryer/OddErrorsAreHarmless"},
		seed: func(_ reference, f *faulty) {
			f.retryable = func(err error) bool { return err.Error() == "try again" }
		},
	},
	{
		name:     "GoodBackendIsInvalid",
		caughtBy: []string{"Validator/AcceptsAGoodBackend"},
		seed:     func(_ reference, f *faulty) { f.validate = func() error { return errDefect } },
	},
}

func declared(abilities ...string) []string {
	for i := range abilities {
		abilities[i] += "/IsAsDeclared"
	}
	return abilities
}

// wrongWatch has a Watch without an error, as an early draft might.
type wrongWatch struct{ *faulty }

func (w wrongWatch) Watch(ctx context.Context, key string) (<-chan struct{}, func()) {
	wake, stop, _ := w.faulty.Watch(ctx, key)
	return wake, stop
}
