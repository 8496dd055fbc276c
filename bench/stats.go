package main

import (
	"math"
	"slices"
)

// quantile returns the smallest value that at least the share q of all values do
// not exceed, and NaN if there is none. It sorts values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	at := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(at, 0), len(values)-1)]
}

// median returns the middle value, or the mean of the two in the middle; NaN if
// there is none. It sorts values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// jain returns Jain's index of fairness: 1 when all have the same share, 1/n when
// one of n has everything; NaN if there is nothing to share.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// series is the results of one subject, by round.
type series struct {
	rounds [][]float64
}

// all returns the values of all rounds.
func (s *series) all() []float64 { return slices.Concat(s.rounds...) }

// ratio is how a series compares with its base.
type ratio struct {
	value     float64 // of the medians of all values
	low, high float64 // quartiles of the ratios of each round
}

// over returns s in relation to base, which took turns with it.
func (s *series) over(base *series) ratio {
	var each []float64
	for i := range s.rounds {
		if r := median(s.rounds[i]) / median(base.rounds[i]); !math.IsNaN(r) {
			each = append(each, r)
		}
	}
	return ratio{median(s.all()) / median(base.all()), quantile(each, 0.25), quantile(each, 0.75)}
}
