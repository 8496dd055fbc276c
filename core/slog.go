package locco

import (
	"context"
	"log/slog"
)

// LogEvents returns a hook for [WithEvents] that logs every event: losses and
// failures at [slog.LevelWarn], all others at [slog.LevelDebug]. A nil logger
// means [slog.Default] at the time of the event.
func LogEvents(logger *slog.Logger) func(Event) {
	return func(ev Event) {
		log := logger
		if log == nil {
			log = slog.Default()
		}
		level := slog.LevelDebug
		switch ev.Kind {
		case EventLost, EventAcquireFailed, EventExtendFailed, EventReleaseFailed, EventNotice:
			level = slog.LevelWarn
		}
		ctx := context.Background()
		if log.Enabled(ctx, level) {
			log.LogAttrs(ctx, level, "locco: "+ev.Kind.String(), ev.attrs()...)
		}
	}
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
