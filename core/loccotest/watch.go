package loccotest

import (
	"context"
	"errors"
	"sync"

	locco "github.com/locco-go/locco/core"
)

// LoseWakeups swallows the next n wake-ups of key, also those of watches that
// are live already. An empty key stands for every key, and an n of 0 for all
// wake-ups until [Backend.Clear].
func (b *Backend) LoseWakeups(key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = append(b.lost, &Fault{Key: key, Times: n, Effect: DropAnswer()})
}

// Watch implements [locco.Watcher]. A fault of Watch concerns its set-up; see
// [Backend.LoseWakeups] for the rest.
func (b *Backend) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	if b.watcher == nil {
		return nil, nil, errors.ErrUnsupported
	}
	c := Call{Op: Watch, Leases: []locco.Lease{{Key: key}}}
	effect := b.begin(c)
	if err := effect.request(ctx, c); err != nil {
		return nil, nil, err
	}
	wake, stop, err = b.watcher.Watch(ctx, key)
	if lost := effect.answer(ctx, c); lost != nil {
		if err == nil {
			stop()
		}
		return nil, nil, lost
	}
	if err != nil {
		return nil, nil, err
	}
	wake, stop = b.forward(c, wake, stop)
	return wake, stop, nil
}

// forward passes wake-ups on, except those that are to be lost. That takes a
// goroutine for each watch, which stop ends.
func (b *Backend) forward(c Call, from <-chan struct{}, stop func()) (<-chan struct{}, func()) {
	to := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case _, ok := <-from:
				if !ok {
					close(to) // a broken backend is not ours to mend
					return
				}
				if b.loses(c) {
					continue
				}
				select {
				case to <- struct{}{}:
				default: // one is there already
				}
			}
		}
	}()
	return to, sync.OnceFunc(func() { close(done); stop() })
}

// loses tells whether a wake-up is to be lost.
func (b *Backend) loses(c Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost.hit(func(f *Fault) bool { return f.matches(c) }).kind != pass
}
