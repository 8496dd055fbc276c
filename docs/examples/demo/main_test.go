package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain holds for the whole package that nothing outlives its test. It sleeps
// in real time because it watches the runtime's scheduler, which no bubble shows.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
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
