package contract

// What the failures of the suite refer to: docs/spec.md, or the comments of the
// interfaces in package locco.
const (
	ruleFree      = "spec 1.1: a free key is granted"
	ruleExclusive = "spec 1.1: a key that is held is refused, as an answer and not as an error"
	ruleHolder    = "spec 1.1: only the holder's token can extend or release"
	ruleNobody    = "spec 8: false without an error when nobody has the key"
	ruleSame      = "locco.Backend: a refusal changes nothing"
	ruleTTL       = "spec 1.3: a lease runs for its TTL, in whole milliseconds, never fewer than asked for"
	ruleEnded     = "spec 1.7: an ended lease counts as gone, whether or not anything swept it"
	ruleNever     = "spec 1.7: an extension never creates a key"
	ruleLate      = "spec 1.7: every grant has a token of its own, so an earlier holder cannot touch a later grant"
	ruleExtend    = "spec 4.1: an extension is a new lease from now"
	ruleRelease   = "spec 5.4: a clean release frees the key at once"
	ruleHolds     = "locco.Backend: Holds tells whether the token holds the key now, and changes nothing"
	ruleAgain     = "locco.Lease.Again: the token's own live lease is a grant; the lease is set anew"
	ruleNotAgain  = "locco.Lease.Again: without it, a key that holds the token is refused, or an error that is Retryable"
	ruleLeft      = "locco.Grant.Left: on a refusal, how long the present lease still runs"
	ruleKeys      = "spec 1.9: a key is any valid UTF-8 without NUL, 1 to 1,024 bytes, and is kept byte for byte"
	ruleTokens    = "spec 1.1: a token is compared byte for byte"
	ruleStore     = "spec 1.1: the lease is in the store, not in a client of it"
	ruleContext   = "locco.Backend: a method returns soon after its context's deadline"
	ruleError     = "spec 8: an error only when the driver failed, and then an error and not an answer"
	ruleDriver    = "spec 7.2: a driver's error passes through unchanged, or wrapped"
	ruleDeclared  = "the harness declares what a backend does without"

	ruleFence   = "spec 6.1: a fence is positive, below 2^53 and larger than that of every earlier grant of the key"
	ruleMixed   = "spec 6.2: fenced and unfenced holders share a backend"
	ruleNoFence = "spec 5.1: the fence is 0 when fencing is off"

	ruleTransfer   = "locco.Transferrer: if from holds the key, it gets the new token, a new lease and a new fence"
	ruleNoTransfer = "locco.Transferrer: if from does not hold the key, nothing changes and the grant is not OK"

	ruleAllOrNone = "locco.ManyAcquirer: all or none, in one atomic step"
	ruleRefused   = "locco.ManyAcquirer: refused is the index of a key that another holder has, or -1"
	ruleVerdicts  = "locco.ManyExtender: one verdict a lease, in order, as Extend would have given it"
	ruleNoHarm    = "spec 8.5: one bad entry harms no other"

	ruleTry         = "spec 2.2: another holder has it is told apart from every other failure"
	ruleSet         = "spec 2.5: a set is taken whole, or nothing of it"
	ruleLockRelease = "spec 5.4: nil when our key was freed, ErrLost when it was gone or another's"

	ruleWake     = "locco.Watcher: the channel receives when the key may have become free by a release"
	ruleWakeLost = "locco.Immediate: with a Watcher that is immediate, no wake-up is lost"
	ruleRoom     = "locco.Watcher: the channel has room for one wake-up, so a sender never blocks"
	ruleOpen     = "locco.Watcher: the channel is never closed"
	ruleStop     = "locco.Watcher: stop may be called more than once and concerns one watch only"
	ruleSetUp    = "locco.Watcher: ctx bounds the set-up only; then the watch is live until stop"
)
