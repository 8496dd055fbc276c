package locco

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Sentinels for [errors.Is]. The types [HeldError], [LateError], [LostError]
// and [ValidationError] carry the details; get them with [errors.As].
var (
	// ErrHeld means that another holder has the key.
	ErrHeld = errors.New("locco: held by another holder")

	// ErrLate means that no answer came while the lease it could have granted
	// was sure to run. Nobody may hold the key: it is not ErrHeld.
	ErrLate = errors.New("locco: answer came too late")

	// ErrLost means that the lock is no longer ours.
	ErrLost = errors.New("locco: lock lost")

	// ErrReleased means that the lock was released, or that there never was
	// one (a nil [Lock]).
	ErrReleased = errors.New("locco: lock is released")

	// ErrInvalid means that an argument, an option or the set-up of the backend
	// is wrong. Nothing was sent because of it.
	ErrInvalid = errors.New("locco: invalid")

	// ErrClosed means that the locker was closed.
	ErrClosed = errors.New("locco: locker is closed")
)

// HeldError says that the key stayed with another holder for as long as the
// caller was willing to try. It matches [ErrHeld].
type HeldError struct {
	Key      string
	Attempts int           // looks made or shared by this call, at least 1
	Elapsed  time.Duration // since the call began
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("locco: %q is held by another holder (attempts %d, elapsed %v)", e.Key, e.Attempts, e.Elapsed)
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LateError says that the last look had no answer in time: it came after the
// lease that it granted could have ended, or the call timeout passed first. It
// matches [ErrLate] and never [ErrHeld]. What the request may have stored is
// given back in the background.
type LateError struct {
	Key      string
	Attempts int
	Elapsed  time.Duration
	Err      error // the driver's error; nil when an answer came, but late
}

func (e *LateError) Error() string {
	if e.Err == errBudget { //nolint:errorlint // never wrapped
		return fmt.Sprintf("locco: no look at %q: %v (elapsed %v)", e.Key, e.Err, e.Elapsed)
	}
	if e.Err == nil {
		return fmt.Sprintf("locco: the answer for %q came after its lease could have ended (elapsed %v)", e.Key, e.Elapsed)
	}
	return fmt.Sprintf("locco: no answer for %q in time (elapsed %v): %s", e.Key, e.Elapsed, inner(e.Err))
}

// Is reports whether target is [ErrLate].
func (e *LateError) Is(target error) bool { return target == ErrLate }

// Unwrap returns the driver's error. It matches what the driver's error
// matches, except [context.DeadlineExceeded] and [context.Canceled]: a timeout
// of ours must not look like the end of the caller's context; and except
// [ErrHeld].
func (e *LateError) Unwrap() error {
	if e.Err == nil {
		return nil
	}
	return innerTimeoutError{e.Err}
}

// innerTimeoutError hides from [errors.Is] that err is a context's error, or says
// that the key is held.
type innerTimeoutError struct{ err error }

func (e innerTimeoutError) Error() string { return e.err.Error() }

func (e innerTimeoutError) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded, context.Canceled, ErrHeld:
		return false
	}
	return errors.Is(e.err, target)
}

func (e innerTimeoutError) As(target any) bool { return errors.As(e.err, target) }

// LostError says that a lock is no longer ours, and why. It matches [ErrLost]
// and its cause.
type LostError struct {
	Key    string
	Reason Reason

	// Completed is true when the error comes from [Locker.WithLock] or one of
	// its kin and the callback returned no error: the work was done, but
	// possibly not alone.
	Completed bool

	// Err is the last driver error behind the loss, if there is one.
	Err error
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("locco: lock %q lost (%s)", e.Key, e.Reason)
	if e.Completed {
		text += ", the callback completed"
	}
	if e.Err != nil {
		text += ": " + inner(e.Err)
	}
	return text
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// Reason says how a lock was lost.
type Reason string

// The reasons of a loss.
const (
	ReasonExtend       Reason = "extend"        // an extension found the key not ours
	ReasonExtendFailed Reason = "extend-failed" // the lease ran out while extensions kept failing
	ReasonLateExtend   Reason = "late-extend"   // the lease ran out while an extension waited for its answer
	ReasonExpired      Reason = "expired"       // the lease ran out and nothing extended it
	ReasonMaxHold      Reason = "max-hold"      // the hold deadline passed
	ReasonRelease      Reason = "release"       // a release found the key gone or another's
	ReasonObserved     Reason = "observed"      // a check found the key gone or another's
)

// ValidationError says what is wrong with an argument, an option or the set-up
// of a backend. It matches [ErrInvalid].
type ValidationError struct {
	Field string // what is wrong, as the caller wrote it: "key", "ttl", "AutoExtend"
	Value any    // the value that was given
	Rule  string // what would be right
	Err   error  // the cause, if there is one
}

func (e *ValidationError) Error() string {
	text := fmt.Sprintf("locco: invalid %s %s: %s", e.Field, printValue(e.Value), e.Rule)
	if e.Err != nil {
		text += ": " + inner(e.Err)
	}
	return text
}

// Is reports whether target is [ErrInvalid].
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the cause.
func (e *ValidationError) Unwrap() error { return e.Err }

// printValue keeps the text short whatever the value is: a key of a megabyte
// must not become a log line of one.
func printValue(v any) string {
	text, quoted := v.(string)
	if !quoted {
		text = fmt.Sprintf("%v", v)
	}
	const most = 80
	rest := ""
	if len(text) > most {
		cut := most
		for cut > most-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text, rest = text[:cut], fmt.Sprintf("… (%d bytes)", len(text))
	}
	if quoted {
		text = strconv.Quote(text)
	}
	return text + rest
}

// inner is the text of err inside that of another error of ours: the prefix
// stands once, in front.
func inner(err error) string { return strings.TrimPrefix(err.Error(), "locco: ") }

// keyError adds the key to an error that does not name it.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return fmt.Sprintf("locco: key %q: %s", e.key, inner(e.err)) }

func (e *keyError) Unwrap() error { return e.err }

// waitError is the error of a call whose context ended. It matches the
// context's cause and its Err, and the answer of the last look if contention
// was what the call waited for.
type waitError struct {
	key   string
	err   error // ctx.Err()
	cause error // context.Cause(ctx)
	held  error // *HeldError or nil
}

func newWaitError(ctx context.Context, key string, held error) error {
	return &waitError{key: key, err: ctx.Err(), cause: context.Cause(ctx), held: held}
}

func (e *waitError) Error() string {
	text := fmt.Sprintf("locco: waiting for %q: %s", e.key, inner(e.cause))
	if e.held != nil {
		text += ": " + inner(e.held)
	}
	return text
}

func (e *waitError) Unwrap() []error {
	errs := []error{e.cause}
	if !errors.Is(e.cause, e.err) {
		errs = append(errs, e.err)
	}
	if e.held != nil {
		errs = append(errs, e.held)
	}
	return errs
}
