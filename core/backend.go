package locco

import (
	"context"
	"time"
)

// Backend stores leases. Adapters implement it; applications use [Locker].
//
// A method makes one attempt: waiting, retrying, extending and giving back
// belong to Locker. It answers true when the operation applied to the caller's
// key, false when another holder or nobody had it, and an error only when the
// driver failed, which it returns as it is. Every operation is one atomic step
// on the server.
//
// The context of every call has a deadline and is not canceled before it; a
// method returns soon after that deadline. What it was asked to do may still
// happen on the server: Locker allows for that. Methods are safe for
// concurrent use, and none of them retries a request by itself in a way that
// could take a grant of the first try for somebody else's lock. The error of a
// server that cannot be reached matches neither [ErrInvalid], which says that
// nothing was stored, nor [errors.ErrUnsupported], which turns an ability off.
//
// A Backend may also implement the optional abilities [Fencer], [Immediate],
// [Retryer], [Watcher], [Transferrer], [ManyAcquirer], [ManyExtender] and
// [Validator]. [New] looks for each once.
type Backend interface {
	// Acquire takes l.Key for l.TTL in the name of l.Token if the key is free,
	// if its lease has ended, or, with l.Again, if l.Token itself has it. It
	// draws a fence if l.Fenced. A refusal is a Grant that is not OK, not an
	// error; with l.WantLeft it tells how long the present lease still runs.
	Acquire(ctx context.Context, l Lease) (Grant, error)

	// Extend gives l.Key a new lease of l.TTL from now if l.Token holds it. It
	// never creates a key, and an ended lease counts as gone even if the record
	// is still stored. The new lease may be shorter than the present one. Of l
	// it reads Key, Token and TTL; the fence of the grant stays as it is.
	Extend(ctx context.Context, l Lease) (bool, error)

	// Release frees key if token holds it. An ended lease counts as gone.
	Release(ctx context.Context, key, token string) (bool, error)

	// Holds tells whether token holds key now. It changes nothing and asks the
	// server that grants.
	Holds(ctx context.Context, key, token string) (bool, error)
}

// Lease is what a backend is asked to keep. It is a struct so that a field can
// be added without breaking adapters.
type Lease struct {
	// Key has the locker's prefix: valid UTF-8 without NUL, 1 to 1,024 bytes.
	Key string

	// Token names the grant. It is random and never used for another grant.
	Token string

	// TTL is how long the backend keeps the key, counted on its own clock:
	// whole milliseconds, at least one, at most [MaxDuration] twice.
	TTL time.Duration

	// Fenced asks for a fencing token in the Grant.
	Fenced bool

	// Again says that Token may already be stored by an attempt whose answer
	// was lost. Then Token's own live lease is a grant: the lease is set anew
	// and, if Fenced, a new fence is drawn. Without Again a key that holds
	// Token is never a grant: it is refused like any other, or, where a driver
	// may send a request twice, an error that is [Retryer]'s, since what is
	// refused may be the grant of the first one.
	Again bool

	// WantLeft asks for Grant.Left on a refusal.
	WantLeft bool
}

// Grant is the answer to an attempt to take a key.
type Grant struct {
	// OK is true when the lease is stored.
	OK bool

	// Fence is the fencing token of a fenced grant: larger than that of every
	// earlier grant of the key, positive, below 2^53. It is 0 when none was
	// asked for.
	Fence int64

	// Left is, on a refusal, how long the present lease still runs; 0 when
	// that was not asked or is not known.
	Left time.Duration
}

// Fencer is a [Backend] whose grants can carry fencing tokens. One without this
// method, or one that answers false, makes [WithFencing] a validation error.
type Fencer interface {
	Fences() bool
}

// Immediate is a [Backend] that never blocks, because it does no I/O. Its calls
// run on the caller's goroutine even when the caller's context can be canceled.
// An Immediate backend that is also a [Watcher] promises that no wake-up is
// lost; waiters then look at the backend only when woken or at a lease's end. For
// that it also wakes the next watcher when one that was woken stops while the key
// is free, and a watcher when the key's lease has come to end before a refusal
// said that it would.
type Immediate interface {
	Immediate() bool
}

// Retryer is a [Backend] that can tell which of its driver's errors pass by
// themselves (a failover, a dropped connection, a serialization failure). An
// Acquire that meets one tries again within its retry budget. A method other
// than Acquire never repeats because of it.
type Retryer interface {
	Retryable(err error) bool
}

// Watcher is a [Backend] that tells waiters when a key may have become free.
//
// ctx bounds the set-up only: once Watch returned, the watch is live until stop
// is called, and Locker looks at the key once more. The channel receives when
// the key may have become free by a release; the end of a lease is Locker's own
// business ([Grant.Left]). The channel has room for one wake-up, so a sender
// never blocks, and it is never closed; after stop nothing is sent. A receive too many is harmless; one
// that is missing costs the waiter at most its retry delay. stop may be called
// more than once, does not block on I/O, and releases all that the watch holds. A
// watch that broke is set up again in the background, without spinning; its
// channel then receives once, because a wake-up may have been missed.
type Watcher interface {
	Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error)
}

// Transferrer is a [Backend] that can hand a key from one token to another in
// one atomic step: if from holds to.Key, the key gets to.Token, a new lease of
// to.TTL and, if to.Fenced, a new fence. Otherwise nothing changes and the
// Grant is not OK, and may tell what is left as a refusal of Acquire does. Nobody
// needs to be woken by it.
type Transferrer interface {
	Transfer(ctx context.Context, from string, to Lease) (Grant, error)
}

// ManyAcquirer is a [Backend] that can take several keys in one atomic step:
// all or none. Keys are distinct and sorted by their bytes. When all were
// granted there is one Grant a lease, in order, and refused is -1; when not,
// nothing is stored and refused is the index of a key that another holder has.
// With an error, grants and refused say nothing. [Lease.Again] counts for each key
// as in Acquire.
// It may answer [errors.ErrUnsupported] for a set that cannot be taken in one
// step (keys on several servers); Locker then takes them one by one.
type ManyAcquirer interface {
	AcquireMany(ctx context.Context, ls []Lease) (grants []Grant, refused int, err error)
}

// ManyExtender is a [Backend] that can extend several leases in one exchange
// with the server. There is one Verdict a lease, in order, and one bad entry
// harms no other. It is not atomic over the set.
type ManyExtender interface {
	ExtendMany(ctx context.Context, ls []Lease) []Verdict
}

// Verdict is the answer to one extension of [ManyExtender], as [Backend.Extend]
// would have given it.
type Verdict struct {
	OK  bool
	Err error
}

// Validator is a [Backend] that can tell, without I/O, that it was built wrong:
// a nil client, a bad option. [New] asks once; the error should be a
// [*ValidationError].
type Validator interface {
	Validate() error
}
