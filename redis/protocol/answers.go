package protocol

import (
	"fmt"
	"time"
)

// Grant reads the answer of [Acquire] and [Transfer]: the fence of a grant (of one
// without a fence it says nothing), or what is left of the lease that refuses it,
// 0 if that is not known.
func Grant(answer int64) (granted bool, fence int64, left time.Duration) {
	if answer > 0 {
		return true, answer, 0
	}
	return false, 0, Left(-answer)
}

// OwnToken begins the error of [Acquire], [AcquireMany] and [Transfer] when the key has
// the token of the request though it does not say that it comes again.
const OwnToken = "OWNTOKEN"

// Left reads an answer of PTTL on a key that is held: 0 if the end is not known.
func Left(milliseconds int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(milliseconds, 0), most)) * time.Millisecond
}

// LeftLater reads an answer of PTTL that was asked for in a command after the refusal.
// A lease that has ended by then, or is in its last millisecond, has the least that
// is left: 0 would say that its end is not known.
func LeftLater(milliseconds int64) time.Duration {
	if milliseconds == 0 || milliseconds == -2 {
		return time.Millisecond
	}
	return Left(milliseconds)
}

// Grants reads the answer of [AcquireMany] for n keys: their fences (of those
// without a fence they say nothing), or the index of the key that is refused.
func Grants(answer []int64, n int) (fences []int64, refused int, err error) {
	switch {
	case len(answer) == n+1 && answer[0] == 0:
		return answer[1:], -1, nil
	case len(answer) == 1 && answer[0] >= 1 && answer[0] <= int64(n):
		return nil, int(answer[0]) - 1, nil
	}
	return nil, -1, fmt.Errorf("locco: the script acquiremany answered %d for %d keys", answer, n)
}

// The answers of [Release].
const (
	NotOurs       = 0 // another holder or nobody has the key
	Freed         = 1
	FreedSilently = 2 // the user may not publish
	FreedUnheard  = 3 // the server does not know the command that publishes
)
