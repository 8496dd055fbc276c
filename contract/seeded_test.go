package contract_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
)

// defects are all seeded defects.
func defects() []defect {
	return slices.Concat(
		abilityDefects, basicDefects, extendDefects, leaseDefects, keyDefects, fenceDefects, raceDefects, watchDefects,
		transferDefects, setDefects, failureDefects, engineDefects,
	)
}

// seededEnv makes this test binary run the suite on defects and fail.
const seededEnv = "LOCCO_CONTRACT_SEEDED"

// TestSeeded is the suite on every defect, each with the cases that must
// notice it. It fails, so it only runs in a child of TestDefects.
func TestSeeded(t *testing.T) {
	t.Parallel()
	which := os.Getenv(seededEnv)
	if which == "" {
		t.Skip("run by TestDefects")
	}
	for _, d := range defects() {
		if which == d.name || which == "all" && !d.alone {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				d.run(t)
			})
		}
	}
}

// TestDefects checks that each defect fails the cases it is named for. The
// reference passes them (TestReference), so it is the defect that they notice.
func TestDefects(t *testing.T) {
	t.Parallel()
	failed := runSeeded(t, "all")
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			failed := failed
			if d.alone {
				failed = runSeeded(t, d.name)
			}
			for _, name := range d.caughtBy {
				if !failed[d.name+"/"+name] {
					t.Errorf("case %s passed; want it to notice the defect", name)
				}
			}
		})
	}
}

// TestNoDefect checks that it is the seed of a defect that fails, not the
// wrapper that it is planted in.
func TestNoDefect(t *testing.T) {
	t.Parallel()
	d := defect{caughtBy: contract.Cases()}
	d.run(t)
}

// runSeeded runs TestSeeded in a child and returns the names of the subtests
// that failed.
func runSeeded(t *testing.T, which string) map[string]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSeeded$", "-test.v", "-test.timeout=100s")
	cmd.Env = append(os.Environ(), seededEnv+"="+which)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the suite passed with seeded defects; want it to fail:\n%s", out)
	}
	if which == "all" && bytes.Contains(out, []byte("\npanic:")) {
		t.Fatalf("the suite panicked on a defect that is not marked as such:\n%s", out)
	}
	failed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- FAIL: TestSeeded/(\S+)`).FindAllSubmatch(out, -1) {
		failed[string(m[1])] = true
	}
	if len(failed) == 0 {
		t.Fatalf("no subtest of the child failed: %v\n%s", err, out)
	}
	return failed
}

// TestEveryCaseNoticesSomething checks that there is no case that cannot fail.
func TestEveryCaseNoticesSomething(t *testing.T) {
	t.Parallel()
	noticed := map[string]bool{}
	names := map[string]bool{}
	for _, d := range defects() {
		if names[d.name] {
			t.Errorf("defect %q is there twice", d.name)
		}
		names[d.name] = true
		for _, name := range d.caughtBy {
			if !slices.Contains(contract.Cases(), name) {
				t.Errorf("defect %q: there is no case %q", d.name, name)
			}
			noticed[name] = true
		}
	}
	for _, name := range contract.Cases() {
		if !noticed[name] {
			t.Errorf("case %q: no seeded defect is there for it to notice", name)
		}
	}
}
