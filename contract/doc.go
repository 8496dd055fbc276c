// Package contract is a test suite for backends of locco: one that passes it
// can be used with every feature of the engine. The built-in backends run it
// in their own tests, and a third party's adapter does the same:
//
//	func TestContract(t *testing.T) {
//		contract.Run(t, contract.Harness{
//			New: func(t *testing.T) locco.Backend {
//				return etcdlock.New(client(t))
//			},
//			WithoutWatcher: true,
//		})
//	}
//
// A backend that has only the four methods declares all that it lacks:
//
//	contract.Harness{
//		New:                func(t *testing.T) locco.Backend { return mine(t) },
//		WithoutFencing:     true,
//		WithoutLeft:        true, // of Grant
//		WithoutWatcher:     true,
//		WithoutTransfer:    true,
//		WithoutManyAcquire: true,
//		WithoutManyExtend:  true,
//		WithoutRetryer:     true,
//		WithoutValidator:   true,
//	}
//
// # What it needs
//
// [Harness.New], and a true word on what the backend does without, is all that is
// required. Where a case named IsAsDeclared fails, mend that first: many others
// then fail for the same reason. Every case gets a backend of its own
// and keys that no other case has, so that all backends of a run may share one
// server, table or collection, and cases run in parallel.
//
// A backend that lives in the process and waits for nothing but timers and
// channels is tested in fake time, by setting [Harness.Bubble] to synctest.Test:
// the run then takes no real time and the ends of leases are checked to the
// millisecond. All others are tested in real time, in steps of [Harness.Unit].
// Such a run mostly waits for leases to end, so it gains from more cases at a
// time than there are processors:
//
//	go test -parallel 16
//
// Slow calls and a busy machine do not fail a case: the end of a lease is judged
// by when calls were sent and answered. What may still need longer units is a
// machine on which a goroutine or the server stands still for half a second.
//
// Two fields make the suite look further. [Harness.Peer] gives a second client
// of the same store, which shows what is wrongly kept in the client.
// [Harness.Broken] gives a backend whose server is out of reach, which shows
// whether failures are told apart from answers.
//
// # What a backend does without
//
// The optional abilities are found by type assertion, so a method with a slightly
// wrong signature would make half the suite vanish without a word. Therefore the
// harness declares what is missing (the Without… fields), and a declaration that
// is wrong, in either direction, fails a case named for it, such as
// Watcher/IsAsDeclared. Cases that need something that is declared missing are
// skipped and say so.
//
// # Reading a failure
//
// A failure says what was called, what came, what was wanted, and the rule:
//
//	Release(foreign token) = true, <nil>; want false, <nil> (spec 1.1: only the
//	holder's token can extend or release)
//
// A panic fails the case that met it and lets the others run.
//
// The rules are those of docs/spec.md in the repository, and of the comments of
// the interfaces in package locco. [Cases] lists the cases; one of them is run
// with -run, such as
//
//	go test -run 'TestContract/Expiry/FreesTheKey'
//
// The group Concurrency is worth running many times, with -race and -count. With
// -short the cases that repeat themselves do so less often.
package contract
