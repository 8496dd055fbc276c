package memory_test

import (
	"testing"
	"testing/synctest"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// spec 9.1: the built-in backends run the suite that third parties run.
func TestContract(t *testing.T) {
	t.Parallel()
	contract.Run(t, contract.Harness{
		New:            func(*testing.T) locco.Backend { return memory.New() },
		Bubble:         synctest.Test,
		Immediate:      true,
		WithoutRetryer: true, // no driver, so none of its errors passes by itself
	})
}
