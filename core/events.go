package locco

import "time"

// EventKind says what an [Event] reports.
type EventKind uint8

// The kinds of event. The comment of each names the fields that it fills,
// besides Kind, Key and TTL, which every event about a key has.
const (
	EventAcquired      EventKind = iota + 1 // Waited, Attempts, Fence
	EventContended                          // Attempts, Elapsed, Reason ("held" or "late"), Err (late: the driver's, if any)
	EventAcquireFailed                      // Err, Waited, Attempts
	EventExtended                           // Held, Left
	EventExtendFailed                       // Held, Err
	EventReleased                           // Held, Outcome
	EventLost                               // Held, Reason, Err (the cause, if any)
	EventReleaseFailed                      // Held, Err
	EventGivenBack                          // Err (nil: the key is not stored in our name any more)
	EventWakeUp                             // Outcome (received or missed)
	EventNotice                             // Err: an ability of the backend is missing or broken; Key and TTL may be empty
)

var eventNames = [...]string{
	"", "acquired", "contended", "acquire failed", "extended", "extend failed", "released", "lost",
	"release failed", "given back", "wake-up", "notice",
}

// String returns the name of the kind, such as "acquire failed".
func (k EventKind) String() string {
	if int(k) >= len(eventNames) || k == 0 {
		return "unknown"
	}
	return eventNames[k]
}

// Why a look at the backend granted nothing, in the Reason of [EventContended].
const (
	ReasonHeld Reason = "held" // another holder has the key
	ReasonLate Reason = "late" // the look had no answer, or not in time
)

// Outcome says how a hold ended well, or what became of a wake-up.
type Outcome string

// The outcomes of a release and of a wake-up.
const (
	OutcomeFreed      Outcome = "freed"       // the key is free
	OutcomeKept       Outcome = "kept"        // the key stays until HoldAtLeast has passed
	OutcomeHandedOver Outcome = "handed-over" // a waiter of this locker has the key now
	OutcomeDetached   Outcome = "detached"    // Detach: the key stays for whoever attaches it
	OutcomeReceived   Outcome = "received"    // a wake-up of the backend arrived
	OutcomeMissed     Outcome = "missed"      // the key was found free by a timed look though a watch was live
)

// Event is what the hook of [WithEvents] receives. Fields that a kind does not
// name are zero.
type Event struct {
	Kind     EventKind
	Key      string        // with the locker's prefix
	TTL      time.Duration // the latest that was asked for
	Attempts int           // looks made or shared so far
	Waited   time.Duration // how long the caller waited in all; 0 when the first look granted
	Elapsed  time.Duration // since the call began
	Held     time.Duration // since the grant
	Left     time.Duration // of the lease, when the extension was confirmed
	Fence    int64
	Reason   Reason
	Outcome  Outcome
	Err      error
}
