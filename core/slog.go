package locco

import (
	"context"
	"errors"
	"log/slog"
)

// LogEvents returns a hook for [WithEvents] that logs every event: losses and
// failures at [slog.LevelWarn], all others at [slog.LevelDebug]. A call that ends
// without a lock because another holder has the key, its context ended or the
// locker was closed is no failure in that sense. A nil logger means
// [slog.Default] at the time of the event.
func LogEvents(logger *slog.Logger) func(Event) {
	return func(ev Event) {
		log := logger
		if log == nil {
			log = slog.Default()
		}
		level := slog.LevelDebug
		if ev.failure() {
			level = slog.LevelWarn
		}
		ctx := context.Background()
		if log.Enabled(ctx, level) {
			log.LogAttrs(ctx, level, "locco: "+ev.Kind.String(), ev.attrs()...)
		}
	}
}

// failure tells whether somebody should hear of it.
func (ev Event) failure() bool {
	switch ev.Kind {
	case EventLost, EventExtendFailed, EventReleaseFailed, EventNotice:
		return true
	case EventGivenBack:
		return ev.Err != nil
	case EventAcquireFailed:
		_, ended := errors.AsType[*waitError](ev.Err)
		return !ended && !errors.Is(ev.Err, ErrHeld) && !errors.Is(ev.Err, ErrClosed)
	}
	return false
}

// attrs returns the fields that are set.
func (ev Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	add := func(set bool, a slog.Attr) {
		if set {
			attrs = append(attrs, a)
		}
	}
	add(ev.Key != "", slog.String("key", ev.Key))
	add(ev.TTL != 0, slog.Duration("ttl", ev.TTL))
	add(ev.Attempts != 0, slog.Int("attempts", ev.Attempts))
	add(ev.Waited != 0, slog.Duration("waited", ev.Waited))
	add(ev.Elapsed != 0, slog.Duration("elapsed", ev.Elapsed))
	add(ev.Held != 0, slog.Duration("held", ev.Held))
	add(ev.Left != 0, slog.Duration("left", ev.Left))
	add(ev.Fence != 0, slog.Int64("fence", ev.Fence))
	add(ev.Reason != "", slog.String("reason", string(ev.Reason)))
	add(ev.Outcome != "", slog.String("outcome", string(ev.Outcome)))
	add(ev.Err != nil, slog.Any("error", ev.Err))
	return attrs
}
