package contract_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// TestMain runs more tests at a time than there are processors, because the cases
// in real time wait more than they work.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set("16"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestReference(t *testing.T) {
	t.Parallel()
	contract.Run(t, harness())
}

// TestRealTime runs the suite as a backend with a server does: without a bubble.
func TestRealTime(t *testing.T) {
	t.Parallel()
	h := harness()
	h.Bubble = nil
	h.Unit = 30 * time.Millisecond
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
	h.Peer, h.Broken = nil, nil
	contract.Run(t, h)
}

var update = flag.Bool("update", false, "rewrite testdata")

// TestCaseNames has the names in a file, because people select and exclude
// cases by them.
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
	const golden = "testdata/cases.txt"
	got := strings.Join(contract.Cases(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("Cases() differs from %s; want the same (rewrite it with -update, and say in the changelog what is new)", golden)
	}
}
