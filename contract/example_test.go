package contract_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// A backend with a server has a test like this one, named TestContract. Each
// case makes its own keys, so all may use one server.
func ExampleRun() {
	testContract := func(t *testing.T) {
		contract.Run(t, contract.Harness{
			New:            func(t *testing.T) locco.Backend { return connect(t, "127.0.0.1:2379") },
			Peer:           func(t *testing.T, _ locco.Backend) locco.Backend { return connect(t, "127.0.0.1:2379") },
			Broken:         func(t *testing.T) locco.Backend { return connect(t, "127.0.0.1:1") },
			WithoutWatcher: true, // declared, and checked
		})
	}
	_ = testContract
}

// connect stands for a backend on a driver's client.
func connect(t *testing.T, address string) locco.Backend {
	t.Helper()
	t.Cleanup(func() {}) // closes the client
	return newReference()
}

// Cases lists the cases, here those of one group.
func ExampleCases() {
	for _, name := range contract.Cases() {
		if strings.HasPrefix(name, "Broken/") {
			fmt.Println(name)
		}
	}
	// Output:
	// Broken/FailsWithAnError
	// Broken/KeepsTheCause
	// Broken/ReturnsByTheDeadline
	// Broken/WatchReturns
}
