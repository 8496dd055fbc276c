package main

import (
	"math"
	"testing"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // not sorted
	}
	for _, tc := range []struct {
		values     []float64
		q, want    float64
		wantMiddle float64
	}{
		{hundred, 0.99, 99, 50.5},
		{hundred, 1, 100, 50.5},
		{hundred, 0, 1, 50.5},
		{[]float64{3, 1, 2}, 0.5, 2, 2},
		{[]float64{7}, 0.99, 7, 7},
		{nil, 0.5, math.NaN(), math.NaN()},
	} {
		if got := quantile(tc.values, tc.q); !same(got, tc.want) {
			t.Errorf("quantile of %d values at %v = %v; want %v", len(tc.values), tc.q, got, tc.want)
		}
		if got := median(tc.values); !same(got, tc.wantMiddle) {
			t.Errorf("median of %d values = %v; want %v", len(tc.values), got, tc.wantMiddle)
		}
	}
}

func TestJain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		shares []float64
		want   float64
	}{
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{9, 0, 0}, 1.0 / 3},
		{[]float64{1, 3}, 0.8},
		{[]float64{0, 0}, math.NaN()},
	} {
		if got := jain(tc.shares); !same(got, tc.want) {
			t.Errorf("jain(%v) = %v; want %v", tc.shares, got, tc.want)
		}
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	base := &series{rounds: [][]float64{{10, 10}, {20, 20}, {10}, {}}}
	s := &series{rounds: [][]float64{{15, 15}, {20, 20}, {20}, {5}}} // the last round has no base
	got := s.over(base)
	if want := (ratio{17.5 / 10, 1, 2}); got != want {
		t.Errorf("over = %+v; want %+v", got, want)
	}
	if got, want := got.String(), "1.75 (1.00–2.00)"; got != want {
		t.Errorf("String = %q; want %q", got, want)
	}
	if got := (&series{}).over(base).String(); got != "–" {
		t.Errorf("String without values = %q; want a dash", got)
	}
}

func same(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-9
}
