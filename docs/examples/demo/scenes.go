package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	locco "github.com/locco-go/locco/core"
)

// play runs the scenes one after the other. Every lock is given back before it
// returns, also when ctx ends.
func (d *demo) play(ctx context.Context) error {
	scenes := []func(context.Context, *locco.Locker) error{
		d.sharing, d.lookingOnce, d.keepingAlive, d.losing, d.fencing, d.sets,
	}
	for _, scene := range scenes {
		locker, err := d.locker()
		if err != nil {
			return err
		}
		err = scene(ctx, locker)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err = errors.Join(err, locker.Close(closing))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// sharing: three workers, two keys, and one line for each key.
func (d *demo) sharing(ctx context.Context, locker *locco.Locker) error {
	d.title(1, "Three workers share two keys: one holder at a time, the others wait in line.")
	var group sync.WaitGroup
	errs := make([]error, 3)
	for i, name := range []string{"anna", "ben", "carla"} {
		group.Go(func() {
			for _, key := range []string{"printer", "scanner"} {
				lock, err := locker.Acquire(ctx, key, 10*time.Second)
				if err != nil {
					errs[i] = err
					return
				}
				how := "at once"
				if lock.Waited() > 0 {
					how = fmt.Sprintf("after waiting %d ms", lock.Waited().Milliseconds())
				}
				d.say(name, "has the %s, %s (fence %s)", key, how, short(lock.Fence()))
				_ = pause(ctx, 150*time.Millisecond)
				d.say(name, "gives the %s back", key)
				if err := lock.Release(ctx); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// lookingOnce: TryAcquire tells "somebody else is at it" from every failure.
func (d *demo) lookingOnce(ctx context.Context, locker *locco.Locker) error {
	d.title(2, "A job that one process does is skipped by another.")
	other, err := d.locker()
	if err != nil {
		return err
	}
	lock, err := locker.TryAcquire(ctx, "cleanup", 10*time.Second)
	if err != nil {
		return err
	}
	d.say("dora", "does the cleanup")
	if _, err := other.TryAcquire(ctx, "cleanup", 10*time.Second); !errors.Is(err, locco.ErrHeld) {
		return fmt.Errorf("looking at a held key: %w; want %w", err, locco.ErrHeld)
	}
	d.say("emil", "looks once and moves on: another holder has it")
	return errors.Join(lock.Release(ctx), other.Close(ctx))
}

// keepingAlive: work that takes longer than the lease.
func (d *demo) keepingAlive(ctx context.Context, locker *locco.Locker) error {
	d.title(3, "Work that takes 1.2 s under a lease of 0.6 s, extended while the callback runs.")
	return locker.WithLock(ctx, "report", 600*time.Millisecond,
		func(ctx context.Context, lock *locco.Lock) error {
			for part := 1; part <= 4; part++ {
				if err := pause(ctx, 300*time.Millisecond); err != nil {
					return err
				}
				d.say("fritz", "part %d of 4 is written, the lease still runs for %d ms", part, lock.Remaining().Milliseconds())
			}
			return nil
		},
		locco.AutoExtend(10*time.Second))
}

// losing: the key vanishes behind the holder's back, as after a flushed store or
// a failover that lost it.
func (d *demo) losing(ctx context.Context, locker *locco.Locker) error {
	d.title(4, "A lock that is lost: the key vanishes from the store while its holder works.")
	err := locker.WithLock(ctx, "accounts", 900*time.Millisecond,
		func(ctx context.Context, lock *locco.Lock) error {
			d.say("greta", "works")
			if _, err := d.backend.Release(ctx, lock.Key(), lock.Token()); err != nil {
				return err
			}
			d.say("(store)", "loses the key")
			err := pause(ctx, 5*time.Second)
			if err != nil {
				d.say("greta", "stops: her context ended at the next extension")
			}
			return err
		},
		locco.AutoExtend(10*time.Second))
	var lost *locco.LostError
	if !errors.As(err, &lost) {
		return fmt.Errorf("the callback of the lost lock returned %w; want a LostError", err)
	}
	d.say("greta", "gets the error: %v", lost)
	return nil
}

// fencing: a holder that slept through the end of its lease writes too late.
func (d *demo) fencing(ctx context.Context, locker *locco.Locker) error {
	d.title(5, "Fencing tokens grow with every grant, so a resource can refuse a late write.")
	highest := int64(0)
	write := func(who string, fence int64) {
		if fence < highest {
			d.say("(disk)", "refuses %s: fence %s is smaller than %s", who, short(fence), short(highest))
			return
		}
		highest = fence
		d.say("(disk)", "takes the write of %s with fence %s", who, short(fence))
	}
	late, err := locker.Acquire(ctx, "file", 100*time.Millisecond)
	if err != nil {
		return err
	}
	d.say("hans", "has the file, and falls asleep for longer than his lease of 100 ms")
	next, err := locker.Acquire(ctx, "file", 10*time.Second)
	if err != nil {
		return err
	}
	d.say("ida", "has the file after %d ms", next.Waited().Milliseconds())
	write("ida", next.Fence())
	d.say("hans", "wakes up; his lock reads %q", late.State())
	write("hans", late.Fence())
	return next.Release(ctx)
}

// sets: transfers between accounts, in both directions at once.
func (d *demo) sets(ctx context.Context, locker *locco.Locker) error {
	d.title(6, "Sets of keys: opposite transfers at once cannot deadlock.")
	var group sync.WaitGroup
	errs := make([]error, 3)
	for i, keys := range [][]string{{"alice", "bob"}, {"bob", "alice"}, {"bob", "carol"}} {
		group.Go(func() {
			who := fmt.Sprintf("job %d", i+1)
			errs[i] = locker.WithLocks(ctx, keys, 10*time.Second, func(ctx context.Context, set *locco.LockSet) error {
				taken := make([]string, 0, len(keys))
				for _, lock := range set.Locks() {
					taken = append(taken, strings.TrimPrefix(lock.Key(), d.prefix))
				}
				d.say(who, "from %s to %s: has %s", keys[0], keys[1], strings.Join(taken, " and "))
				return pause(ctx, 150*time.Millisecond)
			})
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// short is the end of a fencing token: enough to see it grow.
func short(fence int64) string { return fmt.Sprintf("…%06d", fence%1_000_000) }
