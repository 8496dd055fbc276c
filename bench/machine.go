package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// machine describes what the figures were measured on.
func machine() string {
	name := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the architecture has to do
	for line := range strings.Lines(string(text)) {
		if field, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(field) == "model name" {
			name = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d × %s, %s/%s, %s", runtime.NumCPU(), name, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// busy warns if the machine has other work to do.
func busy() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "" // not Linux
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil || load < float64(runtime.NumCPU()) {
		return ""
	}
	return fmt.Sprintf("the load of this machine is %s already: the figures will say little", first)
}
