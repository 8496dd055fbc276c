package contract_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

func TestReference(t *testing.T) {
	t.Parallel()
	contract.Run(t, harness())
}

// TestRealTime runs the suite as a backend with a server does: without a bubble.
func TestRealTime(t *testing.T) {
	t.Parallel()
	h := harness()
	h.Bubble = nil
	h.Unit = 20 * time.Millisecond
	contract.Run(t, h)
}

func TestBare(t *testing.T) {
	t.Parallel()
	h := without(harness())
	h.New = func(*testing.T) locco.Backend { return bare{newReference()} }
	h.Peer = nil
	contract.Run(t, h)
}

func TestRefusing(t *testing.T) {
	t.Parallel()
	h := without(harness())
	h.New = func(*testing.T) locco.Backend { return refusing{bare{newReference()}} }
	h.Peer = nil
	h.Broken = nil
	h.WithoutFencing, h.WithoutManyExtend = true, true
	// By their types the others cannot be told from those that work.
	h.WithoutRetryer, h.WithoutValidator = true, true
	contract.Run(t, h)
}

func TestCaseNames(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[A-Z][A-Za-z]*/[A-Z][A-Za-z0-9]*$`)
	seen := map[string]bool{}
	for _, name := range contract.Cases() {
		if !valid.MatchString(name) {
			t.Errorf("case %q; want Group/Case in letters, easy to type after -run", name)
		}
		if seen[name] {
			t.Errorf("case %q is there twice", name)
		}
		seen[name] = true
	}
}

func ExampleCases() {
	fmt.Println(contract.Cases()[0])
	// Output: Fencer/IsAsDeclared
}
