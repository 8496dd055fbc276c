// Package locco takes distributed locks: leases with a token and a time to live
// in a store that a team already runs.
//
//	import (
//		"github.com/locco-go/locco/core" // package locco
//		"github.com/locco-go/locco/memory"
//	)
//
//	locker, err := locco.New(memory.New())
//	…
//	err = locker.WithLock(ctx, "order:42", 30*time.Second,
//		func(ctx context.Context, lock *locco.Lock) error {
//			return ship(ctx, 42) // ctx ends when the lock is lost
//		},
//		locco.AutoExtend(10*time.Minute))
//
// [New] makes a [Locker] on a [Backend], which is a module of its own for each
// store. [Locker.Acquire] waits for a key, [Locker.TryAcquire] looks once,
// [Locker.AcquireMany] takes a set, and [Locker.WithLock] and [Do] run a callback
// under the lock, which is the form to prefer: it cannot forget to release.
//
// Options that begin with With are for New; all others are for calls, or for
// every call through [WithDefaults]. TryAcquire, TryWithLock and Attach take none
// about retrying: they do not wait. Runnable examples are in the package
// documentation of memory.
//
// # What a Lock promises
//
// One holder: while [Lock.State] reads held, no other Locker on the backend has
// been granted the key. The holder counts its lease from the moment the request
// left, with 1 % taken off, on a clock that notices a suspended machine; the
// backend counts from when the request arrived. So the holder can know that it
// lost the lock before anybody else can have it, also behind a connection that
// went silent. That is knowledge, not force: code that does not look keeps
// running. Look at the context of the callback or of [Lock.Bind] between steps,
// and where a late write would do harm, let the resource refuse it by the
// fencing token ([WithFencing], [Lock.Fence]).
//
// An end: every lease ends by itself. [AutoExtend] renews it, for at most the
// hold limit that it requires.
//
// No lock left behind: a canceled, timed out or late attempt is given back in
// the background, or passed to the next waiter. Where even that fails, the key
// stays until its lease ends.
//
// Order: calls of one Locker for a key queue, first come first served, and one
// of them looks at the backend for all. Between processes there is no order.
//
// # What it does not promise
//
// A store that loses what it had confirmed (a failover of an asynchronous
// replica, a restore) can grant a key twice; the packages of the backends say
// what each can do about that. A clock of the holder that runs more than 1 %
// slower than the backend's breaks the first promise. Locks are not reentrant.
//
// # Errors
//
// Branch with [errors.Is] on [ErrHeld], [ErrLate], [ErrLost], [ErrReleased],
// [ErrInvalid] and [ErrClosed]; read details with [errors.As] from [HeldError],
// [LateError], [LostError] and [ValidationError]. A driver's errors come out as
// they are. ErrHeld is the only one that says that somebody else has the key.
//
// # Time
//
// Durations are given as [time.Duration], at least 1 ms for a lease and at most
// [MaxDuration]; the backend stores whole milliseconds, rounded up. All
// timers are the runtime's, so tests can use [testing/synctest]: make the locker
// in the bubble, and close it there with context.Background(), not with the
// context of the test, which is over by the time of a cleanup.
package locco
