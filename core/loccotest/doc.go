// Package loccotest makes a backend of locco fail on demand, for tests of what a
// program does when its lock is lost, when the server does not answer or when an
// answer is lost on its way.
//
// [Wrap] goes around any backend; the one in memory and testing/synctest make
// tests that take no time. Then
//
//   - [Backend.Inject] makes calls go wrong: a request or an answer that is lost
//     or delayed, an answer that comes too late, an error;
//   - [Backend.Steal] and [Backend.Free] take a key from whoever has it;
//   - [Backend.LoseWakeups] swallows wake-ups;
//   - [Backend.Calls] and [Backend.OnCall] tell what was asked of the backend.
//
// A key is always the whole key, with the prefix of the locker.
//
// # Contexts
//
// A request or an answer that is lost leaves its call hanging until its context
// ends, as a server does that has gone silent. A Locker sets a deadline for
// every call. Who calls a Backend directly has to do the same, or waits for
// ever.
//
// # Goroutines
//
// Nothing runs in the background except one goroutine for each watch, which ends
// when the watch is stopped. All waiting is on channels and timers, so that it
// works in a bubble of testing/synctest.
package loccotest
