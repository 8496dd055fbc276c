package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// table is a table in Markdown.
type table struct {
	title string
	note  string
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes t with its columns aligned, so that it can be read as it is.
func (t *table) write(w io.Writer) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "\n## %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(w, "%s\n\n", t.note)
	}
	line := func(row []string) {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprintf(w, "| %s%s |", cell, pad)
			} else {
				fmt.Fprintf(w, " %s%s |", pad, cell)
			}
		}
		fmt.Fprintln(w)
	}
	line(t.head)
	for i, n := range width {
		if i == 0 {
			fmt.Fprintf(w, "| %s |", strings.Repeat("-", n))
		} else {
			fmt.Fprintf(w, " %s: |", strings.Repeat("-", max(n-1, 1)))
		}
	}
	fmt.Fprintln(w)
	for _, row := range t.rows {
		line(row)
	}
}

// The forms of the cells. What could not be measured is a dash.

func number(x float64, format string) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "–"
	}
	return fmt.Sprintf(format, x)
}

// micros prints a number of seconds.
func micros(seconds float64) string { return number(seconds*1e6, "%.1f µs") }

func (r ratio) String() string {
	if math.IsNaN(r.value) || math.IsInf(r.value, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", r.value, r.low, r.high)
}

// per divides, for counts that may be missing.
func per[N int64 | uint64 | time.Duration](n N, of float64) float64 {
	if of == 0 {
		return math.NaN()
	}
	return float64(n) / of
}
