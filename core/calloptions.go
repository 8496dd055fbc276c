package locco

import "time"

// Retries sets how many looks follow the first; 0 makes the call look once. n
// is at least 0. The default is 10.
func Retries(n int) CallOption {
	return retryOption(func(s *settings) {
		s.retry.Retries = n
		s.countSet = true
		s.check(n >= 0, "Retries", n, "must be at least 0; RetryForever has no limit")
	})
}

// RetryForever removes the limit on looks: the context and [RetryTimeout] end
// the wait.
func RetryForever() CallOption {
	return retryOption(func(s *settings) { s.retry.Retries, s.countSet = Unlimited, true })
}

// RetryDelay sets the longest wait between two looks at the backend, at least 0
// and at most [MaxDuration]. The default is 200 ms. It replaces a
// [RetryBackoff].
func RetryDelay(d time.Duration) CallOption {
	return retryOption(func(s *settings) {
		s.retry.Delay, s.retry.Backoff = d, nil
		s.checkDuration("RetryDelay", d, 0)
	})
}

// RetryBackoff computes the wait before each retry; see [ExponentialBackoff]
// and [Jitter]. It replaces a [RetryDelay].
func RetryBackoff(b Backoff) CallOption {
	return retryOption(func(s *settings) {
		s.retry.Backoff = b
		s.check(b != nil, "RetryBackoff", nil, "must not be nil")
	})
}

// RetryTimeout bounds the whole acquisition, waits included; 0 removes the
// bound. When the same layer (the call's options or the locker's) sets no
// count, it also removes the limit on looks. The default is no bound.
func RetryTimeout(d time.Duration) CallOption {
	return retryOption(func(s *settings) {
		s.retry.Timeout, s.timeoutSet = d, true
		s.checkDuration("RetryTimeout", d, 0)
	})
}

// AutoExtend keeps the lock until it is released, at most for maxHold from its
// grant: then it is lost with [ReasonMaxHold]. maxHold is at least the TTL and
// at most [MaxDuration].
func AutoExtend(maxHold time.Duration) HoldOption {
	return holdOption(func(s *settings) {
		s.autoExtend, s.maxHold = true, maxHold
		s.checkDuration("AutoExtend", maxHold, minDuration)
	})
}

// NoAutoExtend turns off an [AutoExtend] of the locker's defaults.
func NoAutoExtend() HoldOption {
	return holdOption(func(s *settings) { s.autoExtend, s.maxHold, s.every = false, 0, 0 })
}

// ExtendEvery sets the time between two automatic extensions, at most half the
// TTL. The default is a third of the TTL. It needs [AutoExtend].
func ExtendEvery(d time.Duration) HoldOption {
	return holdOption(func(s *settings) {
		s.every = d
		s.checkDuration("ExtendEvery", d, minDuration)
	})
}

// HoldAtLeast makes a release before d has passed since the grant leave the key
// to expire at that moment instead of freeing it: for work that must run at
// most once in d, whichever process does it. d is at most the maxHold of
// [AutoExtend], or the TTL without it. It counts also when the callback of
// [Locker.WithLock] failed: a retry within d is another holder's refusal. The
// default is 0, none.
func HoldAtLeast(d time.Duration) HoldOption {
	return holdOption(func(s *settings) {
		s.atLeast = d
		s.checkDuration("HoldAtLeast", d, 0)
	})
}

// LockDelay makes the backend keep the key for d longer than the holder
// believes in it, so that after a crash or a pause the next holder starts only
// when what the last one had under way is over. A release frees the key at
// once all the same, and a key that [HoldAtLeast] keeps is kept for no longer. The
// default is 0, none.
func LockDelay(d time.Duration) HoldOption {
	return holdOption(func(s *settings) {
		s.lockDelay = d
		s.checkDuration("LockDelay", d, 0)
	})
}

type retryOption func(s *settings)

func (o retryOption) applyCall(s *settings) { o(s) }

type holdOption func(s *settings)

func (o holdOption) applyCall(s *settings) { o(s) }
func (o holdOption) holdOption()           {}

// settings is what a call works with: the built-in values, the locker's and the
// call's, merged. It is copied freely.
type settings struct {
	retry      RetryPolicy
	autoExtend bool
	maxHold    time.Duration
	every      time.Duration // 0: a third of the TTL
	atLeast    time.Duration
	lockDelay  time.Duration

	countSet   bool // by the layer that is being applied
	timeoutSet bool
	err        error // the first bad option
}

func builtinSettings() settings {
	return settings{retry: RetryPolicy{Retries: defaultRetries, Delay: defaultRetryDelay}}
}

// with returns s with one more layer of options.
func (s settings) with(opts []CallOption) settings {
	s.countSet, s.timeoutSet = false, false
	for _, o := range opts {
		if o != nil {
			o.applyCall(&s)
		}
	}
	if s.timeoutSet && !s.countSet && s.retry.Timeout > 0 {
		s.retry.Retries = Unlimited
	}
	return s
}

// validate checks what can be said without a TTL, and with one if ttl is not 0.
func (s *settings) validate(ttl time.Duration) error {
	invalid := func(field string, value time.Duration, rule string) error {
		return &ValidationError{Field: field, Value: value, Rule: rule}
	}
	switch {
	case s.err != nil:
		return s.err
	case s.every != 0 && !s.autoExtend:
		return invalid("ExtendEvery", s.every, "needs AutoExtend")
	case ttl == 0:
		return nil
	case s.autoExtend && s.maxHold < ttl:
		return invalid("AutoExtend", s.maxHold, "the hold limit must be at least the ttl")
	case s.every > ttl/2:
		return invalid("ExtendEvery", s.every, "must be at most half the ttl")
	case s.autoExtend && s.atLeast > s.maxHold:
		return invalid("HoldAtLeast", s.atLeast, "must be at most the hold limit of AutoExtend")
	case !s.autoExtend && s.atLeast > ttl:
		return invalid("HoldAtLeast", s.atLeast, "must be at most the ttl, or the hold limit of AutoExtend")
	}
	return nil
}

func (s *settings) check(ok bool, field string, value any, rule string) {
	if !ok && s.err == nil {
		s.err = &ValidationError{Field: field, Value: value, Rule: rule}
	}
}

func (s *settings) checkDuration(field string, d, least time.Duration) {
	if s.err == nil {
		s.err = checkDuration(field, d, least)
	}
}
