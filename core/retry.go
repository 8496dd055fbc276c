package locco

import (
	"math"
	"math/rand/v2"
	"time"
)

// Unlimited is the number of retries of [RetryForever].
const Unlimited = -1

// The built-in retry policy.
const (
	defaultRetries    = 10
	defaultRetryDelay = 200 * time.Millisecond
)

// RetryPolicy is how long and how often an Acquire tries. It is a value: two
// calls with the same policy have a budget each. [Lock.Retry] shows the one
// that was merged from the built-in defaults (10 retries, 200 ms apart, no
// timeout), the locker's and the call's.
type RetryPolicy struct {
	// Retries is the number of looks after the first; 0 means one look,
	// [Unlimited] as many as the timeout and the context allow.
	Retries int

	// Delay is the wait before each retry. Not used when Backoff is set.
	Delay time.Duration

	// Backoff computes the wait before each retry. Nil means Delay.
	Backoff Backoff

	// Timeout bounds the whole acquisition, waits included; 0 means no bound.
	Timeout time.Duration
}

// next returns the wait before the retry that follows attempt attempts.
func (p *RetryPolicy) next(attempt int, elapsed, previous time.Duration) time.Duration {
	if p.Backoff == nil {
		return p.Delay
	}
	return min(max(p.Backoff(attempt, elapsed, previous), 0), MaxDuration)
}

// Backoff computes the wait before a retry from the number of attempts made so
// far (at least 1), the time since the call began, and the wait before (0 for
// the first). A negative result counts as 0, one above [MaxDuration] as
// MaxDuration. It is called by the goroutine that waits; concurrent calls of
// Acquire call it concurrently.
type Backoff func(attempt int, elapsed, previous time.Duration) time.Duration

// ConstantBackoff waits d before every retry. It is [RetryDelay] as a
// [Backoff], for use with [Jitter].
func ConstantBackoff(d time.Duration) Backoff {
	return func(int, time.Duration, time.Duration) time.Duration { return d }
}

// ExponentialBackoff waits first before the first retry and twice as long
// before each further one, at most limit.
func ExponentialBackoff(first, limit time.Duration) Backoff {
	return func(attempt int, _, _ time.Duration) time.Duration {
		d := first
		for n := attempt; n > 1 && d > 0; n-- {
			if d > limit/2 {
				return limit
			}
			d *= 2
		}
		return min(d, limit)
	}
}

// Jitter takes a random part of up to share (0 to 1; values outside are moved
// to the nearer end, NaN to 0) off every wait of b, so that processes that were
// refused together do not come back together. With a share of 1 it is the "full
// jitter" of Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog,
// 2015), which was the best of those compared there. Jitter of nil is nil.
func Jitter(b Backoff, share float64) Backoff {
	if b == nil {
		return nil // found by RetryBackoff, not by the goroutine that waits
	}
	if share = min(max(share, 0), 1); math.IsNaN(share) {
		share = 0
	}
	return func(attempt int, elapsed, previous time.Duration) time.Duration {
		d := b(attempt, elapsed, previous)
		return d - time.Duration(float64(d)*share*rand.Float64())
	}
}
