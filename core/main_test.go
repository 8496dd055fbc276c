package locco_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain holds for the whole package that nothing outlives its test: a
// locker that was closed, and a lock that was released, leave no goroutine
// behind. It sleeps in real time because it watches the runtime's scheduler,
// which no bubble shows.
//
// spec 4.2, 5.6
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if fuzzing := flag.Lookup("test.fuzz"); fuzzing != nil && fuzzing.Value.String() != "" {
		os.Exit(code) // the fuzzing engine has goroutines of its own
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "%d goroutines before the tests, %d after:\n", before, runtime.NumGoroutine())
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			os.Exit(1)
		}
		time.Sleep(5 * time.Millisecond)
	}
	os.Exit(code)
}
