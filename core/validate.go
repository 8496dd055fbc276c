package locco

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	minDuration   = time.Millisecond // the shortest TTL
	maxKeyBytes   = 1024
	maxTokenBytes = 256
	maxFence      = 1<<53 - 1 // the largest integer that every JSON reader keeps
)

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return &ValidationError{Field: "ctx", Value: nil, Rule: "must not be nil"}
	}
	return nil
}

// checkKey checks a key with its prefix.
func checkKey(key string) error {
	rule := keyRule(key)
	if key == "" {
		rule = "must not be empty"
	}
	if rule == "" {
		return nil
	}
	return &ValidationError{Field: "key", Value: key, Rule: rule}
}

// keyRule returns the rule that key, or the prefix of all keys, breaks; "" if
// none.
func keyRule(key string) string {
	switch {
	case len(key) > maxKeyBytes:
		return "must be at most 1024 bytes with the prefix"
	case !utf8.ValidString(key):
		return "must be valid UTF-8"
	case strings.IndexByte(key, 0) >= 0:
		return "must not contain NUL"
	}
	return ""
}

func checkToken(token string) error {
	if token != "" && len(token) <= maxTokenBytes && utf8.ValidString(token) && strings.IndexByte(token, 0) < 0 {
		return nil
	}
	return &ValidationError{
		Field: "token", Value: token,
		Rule: "must be 1 to 256 bytes of UTF-8 without NUL",
	}
}

func checkTTL(ttl time.Duration) error { return checkDuration("ttl", ttl, minDuration) }

func checkDuration(field string, d, least time.Duration) error {
	switch {
	case d < least:
		return &ValidationError{Field: field, Value: d, Rule: "must be at least " + least.String()}
	case d > MaxDuration:
		return &ValidationError{Field: field, Value: d, Rule: "must be at most " + MaxDuration.String()}
	}
	return nil
}

// wholeMillis rounds up: the backend never keeps a key for less than was asked.
func wholeMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
