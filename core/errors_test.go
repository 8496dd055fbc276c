package locco_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	locco "github.com/locco-go/locco/core"
)

// sentinels are all that a caller may branch on, and the context's errors, which
// no error of ours may look like.
var sentinels = map[string]error{
	"ErrHeld": locco.ErrHeld, "ErrLate": locco.ErrLate, "ErrLost": locco.ErrLost, "ErrReleased": locco.ErrReleased,
	"ErrInvalid": locco.ErrInvalid, "ErrClosed": locco.ErrClosed,
	"Canceled": context.Canceled, "DeadlineExceeded": context.DeadlineExceeded,
	"errBroken": errBroken, "EOF": io.EOF,
}

// codeError is what a driver's errors are like: a type with details.
type codeError struct{ code string }

func (e codeError) Error() string { return "driver: code " + e.code }

// spec 7.2
func TestErrorsMatch(t *testing.T) {
	t.Parallel()
	coded := fmt.Errorf("query: %w", codeError{"57P01"})
	for _, tc := range []struct {
		name    string
		err     error
		matches []string
	}{
		{"Held", &locco.HeldError{Key: "k"}, []string{"ErrHeld"}},
		{"Late", &locco.LateError{Key: "k"}, []string{"ErrLate"}},
		{"LateWithDriver", &locco.LateError{Key: "k", Err: errBroken}, []string{"ErrLate", "errBroken"}},
		{"LateWithWrapped", &locco.LateError{Key: "k", Err: fmt.Errorf("driver: %w", io.EOF)}, []string{"ErrLate", "EOF"}},
		{"LateWithTimeout", &locco.LateError{Key: "k", Err: context.DeadlineExceeded}, []string{"ErrLate"}},
		{"LateWithWrappedTimeout", &locco.LateError{Key: "k", Err: fmt.Errorf("driver: %w", context.DeadlineExceeded)}, []string{"ErrLate"}},
		{"LateWithCancel", &locco.LateError{Key: "k", Err: fmt.Errorf("driver: %w", context.Canceled)}, []string{"ErrLate"}},
		{"LateWithBoth", &locco.LateError{Key: "k", Err: errors.Join(io.EOF, context.DeadlineExceeded)}, []string{"ErrLate", "EOF"}},
		{"LateWithHeld", &locco.LateError{Key: "k", Err: fmt.Errorf("driver: %w", locco.ErrHeld)}, []string{"ErrLate"}},
		{"LateWithCode", &locco.LateError{Key: "k", Err: coded}, []string{"ErrLate"}},
		{"Lost", &locco.LostError{Key: "k", Reason: locco.ReasonExpired}, []string{"ErrLost"}},
		{"LostWithDriver", &locco.LostError{Key: "k", Reason: locco.ReasonExtendFailed, Err: errBroken}, []string{"ErrLost", "errBroken"}},
		{
			"LostWithLate", &locco.LostError{Key: "k", Err: &locco.LateError{Err: context.DeadlineExceeded}},
			[]string{"ErrLost", "ErrLate"},
		},
		{"Invalid", &locco.ValidationError{Field: "key", Value: 1, Rule: "must"}, []string{"ErrInvalid"}},
		{"InvalidWithCause", &locco.ValidationError{Field: "table", Err: io.EOF}, []string{"ErrInvalid", "EOF"}},
		{"Closed", locco.ErrClosed, []string{"ErrClosed"}},
		{"Released", locco.ErrReleased, []string{"ErrReleased"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{tc.err, fmt.Errorf("wrapped: %w", tc.err)} {
				for name, target := range sentinels {
					if got, want := errors.Is(err, target), slices.Contains(tc.matches, name); got != want {
						t.Errorf("Is(%v, %s) = %v; want %v", err, name, got, want)
					}
				}
			}
		})
	}
}

// The details are reached through errors.As, also behind a timeout of ours.
//
// spec 7.2
func TestErrorsAs(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("query: %w", codeError{"57P01"})
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"Late", &locco.LateError{Key: "k", Err: cause}},
		{"LateWithTimeout", &locco.LateError{Key: "k", Err: errors.Join(context.DeadlineExceeded, cause)}},
		{"Lost", &locco.LostError{Key: "k", Err: cause}},
		{"LostWithLate", &locco.LostError{Key: "k", Err: &locco.LateError{Err: cause}}},
		{"Invalid", &locco.ValidationError{Field: "table", Err: cause}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var code codeError
			if !errors.As(tc.err, &code) || code.code != "57P01" {
				t.Errorf("As(%v) = %+v; want the driver's error", tc.err, code)
			}
		})
	}
	var (
		held    *locco.HeldError
		late    *locco.LateError
		lost    *locco.LostError
		invalid *locco.ValidationError
	)
	wrapped := errors.Join(
		&locco.HeldError{Key: "a", Attempts: 3}, &locco.LateError{Key: "b"},
		&locco.LostError{Key: "c", Completed: true}, &locco.ValidationError{Field: "d"})
	if !errors.As(wrapped, &held) || held.Key != "a" || held.Attempts != 3 {
		t.Errorf("As(*HeldError) = %+v; want that of a", held)
	}
	if !errors.As(wrapped, &late) || late.Key != "b" || late.Unwrap() != nil {
		t.Errorf("As(*LateError) = %+v; want that of b, without a cause", late)
	}
	if !errors.As(wrapped, &lost) || lost.Key != "c" || !lost.Completed {
		t.Errorf("As(*LostError) = %+v; want that of c", lost)
	}
	if !errors.As(wrapped, &invalid) || invalid.Field != "d" {
		t.Errorf("As(*ValidationError) = %+v; want that of d", invalid)
	}
}

// The prefix is there once, and keys are quoted.
//
// spec 7.2
func TestErrorsText(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{
			"Held", &locco.HeldError{Key: "order:\n42", Attempts: 11, Elapsed: 2 * s},
			`locco: "order:\n42" is held by another holder (attempts 11, elapsed 2s)`,
		},
		{
			"Late", &locco.LateError{Key: "k", Attempts: 1, Elapsed: 3 * s},
			`locco: the answer for "k" came after its lease could have ended (elapsed 3s)`,
		},
		{
			"LateWithDriver", &locco.LateError{Key: "k", Attempts: 1, Elapsed: 3 * s, Err: errBroken},
			`locco: no answer for "k" in time (elapsed 3s): driver: broken`,
		},
		{"Lost", &locco.LostError{Key: "k", Reason: locco.ReasonMaxHold}, `locco: lock "k" lost (max-hold)`},
		{
			"LostCompleted", &locco.LostError{Key: "k", Reason: locco.ReasonExpired, Completed: true},
			`locco: lock "k" lost (expired), the callback completed`,
		},
		{
			"LostWithDriver", &locco.LostError{Key: "k", Reason: locco.ReasonExtendFailed, Completed: true, Err: errBroken},
			`locco: lock "k" lost (extend-failed), the callback completed: driver: broken`,
		},
		{
			"InvalidKey", &locco.ValidationError{Field: "key", Value: "a\x00b", Rule: "must not contain NUL"},
			`locco: invalid key "a\x00b": must not contain NUL`,
		},
		{
			"InvalidTTL", &locco.ValidationError{Field: "ttl", Value: -s, Rule: "must be at least 1ms"},
			`locco: invalid ttl -1s: must be at least 1ms`,
		},
		{
			"InvalidNil", &locco.ValidationError{Field: "ctx", Rule: "must not be nil"},
			`locco: invalid ctx <nil>: must not be nil`,
		},
		{
			"InvalidWithCause", &locco.ValidationError{Field: "table", Value: "locks", Rule: "must exist", Err: errBroken},
			`locco: invalid table "locks": must exist: driver: broken`,
		},
		{"ErrHeld", locco.ErrHeld, "locco: held by another holder"},
		{"ErrLate", locco.ErrLate, "locco: answer came too late"},
		{"ErrLost", locco.ErrLost, "locco: lock lost"},
		{"ErrReleased", locco.ErrReleased, "locco: lock is released"},
		{"ErrInvalid", locco.ErrInvalid, "locco: invalid"},
		{"ErrClosed", locco.ErrClosed, "locco: locker is closed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.err.Error(); got != tc.want {
				t.Errorf("Error = %s; want %s", got, tc.want)
			}
		})
	}
}

// A value of any size makes a short line, and a whole one.
//
// spec 7.2
func TestErrorsCutLongValues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		value any
		want  string // in the text
	}{
		{"Whole", strings.Repeat("k", 80), `"` + strings.Repeat("k", 80) + `":`},
		{"Cut", strings.Repeat("k", 81), `"` + strings.Repeat("k", 80) + `"… (81 bytes):`},
		{"Megabyte", strings.Repeat("k", 1<<20), "(1048576 bytes)"},
		{"BetweenRunes", strings.Repeat("é", 600), `"` + strings.Repeat("é", 40) + `"… (1200 bytes)`},
		{"NotInARune", "k" + strings.Repeat("é", 600), `"k` + strings.Repeat("é", 39) + `"… (1201 bytes)`},
		{"Escaped", strings.Repeat("\x00", 600), `\x00"… (600 bytes)`},
		{"NotUTF8", strings.Repeat("\x80", 600), `\x80"… (600 bytes)`},
		{"Slice", make([]string, 1000), "… (1001 bytes)"},
		{"Error", errors.New(strings.Repeat("世", 1000)), strings.Repeat("世", 26) + "… (3000 bytes)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := (&locco.ValidationError{Field: "f", Value: tc.value, Rule: "r"}).Error()
			if !strings.Contains(got, tc.want) || !utf8.ValidString(got) || len(got) > 400 {
				t.Errorf("Error = %q; want short UTF-8 with %q", got, tc.want)
			}
		})
	}
}

// A wait that its context ended matches the cause and Err of the context, and
// ErrHeld when contention was what it waited for.
//
// spec 2.6, 7.2
func TestErrorsOfAWait(t *testing.T) {
	t.Parallel()
	mine := errors.New("shutting down")
	for _, tc := range []struct {
		name    string
		held    bool
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		matches []string
		cause   error
		text    string
	}{
		{"Timeout", true, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, []string{"ErrHeld", "DeadlineExceeded"}, context.DeadlineExceeded, `locco: waiting for "k": context deadline exceeded: `},
		{"TimeoutWithCause", true, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, mine)
		}, []string{"ErrHeld", "DeadlineExceeded"}, mine, `locco: waiting for "k": shutting down: `},
		{"Cancel", true, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, []string{"ErrHeld", "Canceled"}, context.Canceled, `locco: waiting for "k": context canceled: `},
		{"CancelWithCause", true, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(mine) })
			return ctx, func() { cancel(nil) }
		}, []string{"ErrHeld", "Canceled"}, mine, `locco: waiting for "k": shutting down: `},
		{"OverAtOnce", false, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(mine)
			return ctx, func() {}
		}, []string{"Canceled"}, mine, `locco: waiting for "k": shutting down`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.held {
					s.take("k", time.Hour)
				}
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				_, err := newLocker(t, s).Acquire(ctx, "k", time.Minute, locco.RetryForever())
				for name, target := range sentinels {
					if got, want := errors.Is(err, target), slices.Contains(tc.matches, name); got != want {
						t.Errorf("Is(%v, %s) = %v; want %v", err, name, got, want)
					}
				}
				if !errors.Is(err, tc.cause) {
					t.Errorf("Is(%v, the cause) = false; want true", err)
				}
				text := err.Error()
				if !strings.HasPrefix(text, tc.text) {
					t.Errorf("Error = %s; want it to begin with %s", text, tc.text)
				}
				var held *locco.HeldError
				if errors.As(err, &held) != tc.held {
					t.Errorf("As(*HeldError) = %v; want %v", !tc.held, tc.held)
				}
				if tc.held && (held.Key != "k" || held.Elapsed != time.Second || held.Attempts < 1) {
					t.Errorf("HeldError = %+v; want key k, elapsed 1s", held)
				}
				if n := strings.Count(text, "locco: "); n != 1 {
					t.Errorf("Error = %s; want the prefix once, not %d times", text, n)
				}
			})
		})
	}
}

// noRelease is a store whose releases fail.
type noRelease struct{ *store }

func (noRelease) Release(context.Context, string, string) (bool, error) { return false, errBroken }

// An error of a set names the keys.
//
// spec 2.5, 7.2
func TestErrorsOfASet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	set, err := newLocker(t, noRelease{immediateStore()}).AcquireMany(ctx, []string{"a", "b"}, time.Minute)
	if err != nil {
		t.Fatalf("AcquireMany: %v", err)
	}
	err = set.Release(ctx)
	if !errors.Is(err, errBroken) {
		t.Errorf("Release = %v; want it to match the driver's error", err)
	}
	if got, want := fmt.Sprint(err), "locco: key \"a\": driver: broken\nlocco: key \"b\": driver: broken"; got != want {
		t.Errorf("Release = %s; want %s", got, want)
	}
	if _, err = newLocker(t, immediateStore()).AcquireMany(ctx, []string{"good", "\xff"}, time.Minute); !errors.Is(err, locco.ErrInvalid) {
		t.Errorf("AcquireMany = %v; want ErrInvalid", err)
	}
	set.Release(ctx)
	if err = set.Extend(ctx, time.Minute); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Extend = %v; want ErrReleased", err)
	}
	if got, want := fmt.Sprint(err), "locco: key \"a\": lock is released\nlocco: key \"b\": lock is released"; got != want {
		t.Errorf("Extend = %s; want %s", got, want)
	}
}
