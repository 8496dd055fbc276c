package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	locco "github.com/locco-go/locco/core"
)

// abilities are what a subject of locco is measured for, besides cycles.
type abilities struct {
	wait bool // for a key that others hold
	keep bool // many keys for long
}

// loccoSubject is locco on any backend.
func loccoSubject(name string, b locco.Backend, commands []string, can abilities, options ...locco.Option) (*subject, error) {
	locker, err := locco.New(b, options...)
	if err != nil {
		return nil, err
	}
	s := &subject{
		name:     name,
		commands: commands,
		cycle: func(ctx context.Context, key string) error {
			lock, err := locker.Acquire(ctx, key, lease)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		},
	}
	if can.wait {
		s.crowds = true
		s.hold = func(ctx context.Context, key string) (func(context.Context) error, error) {
			lock, err := locker.Acquire(ctx, key, lease, locco.RetryForever())
			return lock.Release, err
		}
	}
	if can.keep {
		s.keeper = loccoKeeper(b, options)
	}
	return s, nil
}

func loccoKeeper(b locco.Backend, options []locco.Option) func() (keeper, error) {
	return func() (keeper, error) {
		var renewed atomic.Int64
		count := func(e locco.Event) {
			if e.Kind == locco.EventExtended {
				renewed.Add(1)
			}
		}
		keeping, err := locco.New(b, append(slices.Clip(options), locco.WithEvents(count))...)
		if err != nil {
			return keeper{}, err
		}
		return keeper{
			keep: func(ctx context.Context, key string, ttl time.Duration) error {
				_, err := keeping.Acquire(ctx, key, ttl, locco.AutoExtend(time.Hour))
				return err
			},
			renewed: renewed.Load,
			end:     keeping.Close,
		}, nil
	}
}
