package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

// demo is the stage: it prints what happens, and counts.
type demo struct {
	backend locco.Backend
	prefix  string // of this run's keys, in a store that others may use too
	began   time.Time

	mu       sync.Mutex // guards the rest
	out      io.Writer
	acquired int
	waited   int
	handed   int
	lost     int
}

func newDemo(out io.Writer, backend locco.Backend) *demo {
	return &demo{backend: backend, prefix: "demo:" + rand.Text()[:6] + ":", began: time.Now(), out: out}
}

// locker makes a locker as another process would have it: lockers share nothing
// but the backend.
func (d *demo) locker(opts ...locco.Option) (*locco.Locker, error) {
	opts = append([]locco.Option{
		locco.WithPrefix(d.prefix),
		locco.WithFencing(),
		locco.WithEvents(d.count),
	}, opts...)
	return locco.New(d.backend, opts...)
}

// count is the hook of all lockers.
func (d *demo) count(ev locco.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch ev.Kind {
	case locco.EventAcquired:
		d.acquired++
		if ev.Waited > 0 {
			d.waited++
		}
	case locco.EventReleased:
		if ev.Outcome == locco.OutcomeHandedOver {
			d.handed++
		}
	case locco.EventLost:
		d.lost++
	}
}

func (d *demo) summary() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%d locks taken, %d of them after a wait, %d handed straight to the next in line, %d lost on purpose",
		d.acquired, d.waited, d.handed, d.lost)
}

func (d *demo) title(number int, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "\n%d. %s\n", number, text)
}

// say prints a line: when, who, what.
func (d *demo) say(who, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "   %5.2fs  %-8s %s\n", time.Since(d.began).Seconds(), who, fmt.Sprintf(format, args...))
}

// pause stands for work. It ends early with the context, and says so.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
