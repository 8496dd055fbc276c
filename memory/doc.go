// Package memory is the backend of locco that lives in the process: for tests,
// for development, and for programs of one process that want leases, waiting
// and fencing without a server.
//
//	locker, err := locco.New(memory.New())
//
// Lockers that are to exclude each other share one [Backend].
//
// # Guarantees
//
// Every operation is one atomic step. The backend's clock, and nothing else,
// decides when a lease has ended: at its last instant it is over. The clock is
// monotonic unless [WithClock] replaces it; the lock delay of a locker is part of
// the TTL that it asks for.
//
// Fencing tokens are drawn after the lease is stored, from one counter for all
// keys, so that those of one key have gaps. The counter starts at the wall
// clock in microseconds: after a restart of the process the tokens go on growing
// unless the wall clock was set back, or the process had made more than a million
// fenced grants a second over its whole life.
//
// Watchers of a key are woken one at a time, in the order in which they came or
// were last woken, and no wake-up is lost; [Backend.Watch] says what that means.
// Nobody polls.
//
// Memory is proportional to what is held and waited for. There is no goroutine
// and no timer: ended leases that nobody asks for again are removed a few at a
// time by the operations on other keys, and maps give their memory back when
// they have become mostly empty. An idle backend keeps what it has until it is
// used again.
//
// # Stored data
//
// Nothing outlives the process. A lease is its key, its token and the moment at
// which it ends. The fence is not stored with it, so fenced and unfenced holders
// share a backend. [Backend.Clear] forgets all leases and keeps the counter.
//
// # Errors
//
// There is no driver that could fail. An operation whose context is already over
// does nothing and answers the context's error. A bad option is a
// [*locco.ValidationError] from [Backend.Validate], and so from [locco.New]; so
// is a Backend that is nil or was not made by [New], whose operations panic.
//
// # Driver access
//
// There is none to have: the Backend is the store. Its methods may be called
// directly, beside any locker that uses it; a test can take a key with
// [Backend.Acquire] to play another holder.
//
// Under testing/synctest the default clock is the bubble's. Make the Backend
// inside the bubble that uses it, as its clock and its channels belong there.
package memory
