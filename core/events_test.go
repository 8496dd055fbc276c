package locco_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// spec 7.1
func TestEventKindString(t *testing.T) {
	t.Parallel()
	for kind, want := range map[locco.EventKind]string{
		locco.EventAcquired: "acquired", locco.EventContended: "contended", locco.EventAcquireFailed: "acquire failed",
		locco.EventExtended: "extended", locco.EventExtendFailed: "extend failed", locco.EventReleased: "released",
		locco.EventLost: "lost", locco.EventReleaseFailed: "release failed", locco.EventGivenBack: "given back",
		locco.EventWakeUp: "wake-up", locco.EventNotice: "notice",
		0: "unknown", locco.EventNotice + 1: "unknown", 255: "unknown",
	} {
		if got := kind.String(); got != want {
			t.Errorf("EventKind(%d).String() = %q; want %q", kind, got, want)
		}
	}
}

// textLogger writes what it is given from level on, without the time.
func textLogger(w *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// spec 7.1: losses and failures are warnings, all else is for debugging.
func TestLogEvents(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		name string
		ev   locco.Event
		want string
	}{
		{
			"Acquired",
			locco.Event{Kind: locco.EventAcquired, Key: "k", TTL: 10 * s, Attempts: 2, Waited: s, Fence: 7},
			`level=DEBUG msg="locco: acquired" key=k ttl=10s attempts=2 waited=1s fence=7`,
		},
		{
			"AcquiredAtOnce",
			locco.Event{Kind: locco.EventAcquired, Key: "k", TTL: 10 * s, Attempts: 1},
			`level=DEBUG msg="locco: acquired" key=k ttl=10s attempts=1`,
		},
		{
			"Contended",
			locco.Event{Kind: locco.EventContended, Key: "k", TTL: s, Attempts: 1, Elapsed: 2 * s, Reason: locco.ReasonLate, Err: errBroken},
			`level=DEBUG msg="locco: contended" key=k ttl=1s attempts=1 elapsed=2s reason=late error="driver: broken"`,
		},
		{
			"AcquireFailed",
			locco.Event{Kind: locco.EventAcquireFailed, Key: "k", TTL: s, Attempts: 11, Waited: 2 * s, Err: locco.ErrHeld},
			`level=DEBUG msg="locco: acquire failed" key=k ttl=1s attempts=11 waited=2s error="locco: held by another holder"`,
		},
		{
			"AcquireFailedByTheDriver",
			locco.Event{Kind: locco.EventAcquireFailed, Key: "k", TTL: s, Attempts: 1, Err: errBroken},
			`level=WARN msg="locco: acquire failed" key=k ttl=1s attempts=1 error="driver: broken"`,
		},
		{
			"AcquireFailedLate",
			locco.Event{Kind: locco.EventAcquireFailed, Key: "k", TTL: s, Attempts: 1, Err: locco.ErrLate},
			`level=WARN msg="locco: acquire failed" key=k ttl=1s attempts=1 error="locco: answer came too late"`,
		},
		{
			"AcquireFailedByClose",
			locco.Event{Kind: locco.EventAcquireFailed, Key: "k", TTL: s, Attempts: 1, Err: locco.ErrClosed},
			`level=DEBUG msg="locco: acquire failed" key=k ttl=1s attempts=1 error="locco: locker is closed"`,
		},
		{
			"Extended",
			locco.Event{Kind: locco.EventExtended, Key: "k", TTL: s, Held: 3 * s, Left: 990 * time.Millisecond},
			`level=DEBUG msg="locco: extended" key=k ttl=1s held=3s left=990ms`,
		},
		{
			"ExtendFailed",
			locco.Event{Kind: locco.EventExtendFailed, Key: "k", TTL: s, Held: 3 * s, Err: errBroken},
			`level=WARN msg="locco: extend failed" key=k ttl=1s held=3s error="driver: broken"`,
		},
		{
			"Released",
			locco.Event{Kind: locco.EventReleased, Key: "a key", TTL: s, Held: 3 * s, Outcome: locco.OutcomeHandedOver},
			`level=DEBUG msg="locco: released" key="a key" ttl=1s held=3s outcome=handed-over`,
		},
		{
			"Lost",
			locco.Event{Kind: locco.EventLost, Key: "k", TTL: s, Held: 3 * s, Reason: locco.ReasonMaxHold},
			`level=WARN msg="locco: lost" key=k ttl=1s held=3s reason=max-hold`,
		},
		{
			"ReleaseFailed",
			locco.Event{Kind: locco.EventReleaseFailed, Key: "k", TTL: s, Held: s, Err: errBroken},
			`level=WARN msg="locco: release failed" key=k ttl=1s held=1s error="driver: broken"`,
		},
		{
			"GivenBack",
			locco.Event{Kind: locco.EventGivenBack, Key: "k", TTL: s},
			`level=DEBUG msg="locco: given back" key=k ttl=1s`,
		},
		{
			"GivenBackInVain",
			locco.Event{Kind: locco.EventGivenBack, Key: "k", TTL: s, Err: errBroken},
			`level=WARN msg="locco: given back" key=k ttl=1s error="driver: broken"`,
		},
		{
			"WakeUp",
			locco.Event{Kind: locco.EventWakeUp, Key: "k", TTL: s, Outcome: locco.OutcomeMissed},
			`level=DEBUG msg="locco: wake-up" key=k ttl=1s outcome=missed`,
		},
		{
			"Notice",
			locco.Event{Kind: locco.EventNotice, Err: errBroken},
			`level=WARN msg="locco: notice" error="driver: broken"`,
		},
		{"Unknown", locco.Event{}, `level=DEBUG msg="locco: unknown"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			locco.LogEvents(textLogger(&out, slog.LevelDebug))(tc.ev)
			if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want {
				t.Errorf("logged %s; want %s", got, tc.want)
			}
			out.Reset()
			locco.LogEvents(textLogger(&out, slog.LevelWarn))(tc.ev)
			if got, want := out.Len() > 0, strings.HasPrefix(tc.want, "level=WARN"); got != want {
				t.Errorf("logged for a logger of warnings = %v; want %v", got, want)
			}
		})
	}
}

// An event that nobody reads costs nothing.
//
// spec 7.1
func TestLogEventsIsCheap(t *testing.T) {
	// Not parallel: it counts allocations.
	hook := locco.LogEvents(textLogger(new(bytes.Buffer), slog.LevelWarn))
	if got := testing.AllocsPerRun(100, func() { hook(locco.Event{Kind: locco.EventAcquired, Key: "k", TTL: time.Second}) }); got != 0 {
		t.Errorf("an event that is not logged allocates %v times; want 0", got)
	}
}

// spec 7.1: a nil logger is the default one, whatever that is at the time.
func TestLogEventsNilLogger(t *testing.T) {
	// Not parallel: it changes the default logger.
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	hook := locco.LogEvents(nil)
	var out bytes.Buffer
	slog.SetDefault(textLogger(&out, slog.LevelDebug))
	hook(locco.Event{Kind: locco.EventLost, Key: "k"})
	if got, want := out.String(), "level=WARN msg=\"locco: lost\" key=k\n"; got != want {
		t.Errorf("logged %q; want %q", got, want)
	}
}

// The hook of a locker is this one's usual place.
//
// spec 7.1
func TestLogEventsOfALocker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var out bytes.Buffer
	locker := newLocker(t, immediateStore(), locco.WithEvents(locco.LogEvents(textLogger(&out, slog.LevelDebug))))
	lock, err := locker.Acquire(ctx, "k", time.Minute)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	if err := lock.Extend(ctx, time.Hour); err != nil {
		t.Fatalf("Extend: %v", err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Fatalf("Release: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{
		`level=DEBUG msg="locco: acquired" key=k ttl=1m0s attempts=1`,
		`level=DEBUG msg="locco: extended" key=k ttl=1h0m0s held=`,
		`level=DEBUG msg="locco: released" key=k ttl=1h0m0s held=`,
	} {
		if len(lines) != 3 || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("logged %q; want line %d to begin with %s", lines, i, want)
		}
	}
}
