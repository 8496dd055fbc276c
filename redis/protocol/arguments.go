package protocol

import (
	"strconv"
	"time"
)

// Milliseconds is a TTL as Redis takes it: whole milliseconds, never fewer than ttl.
func Milliseconds(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

// Arguments are the arguments of a script. It is an array with a length so that a
// call costs no allocation for them.
type Arguments struct {
	list [4]string
	n    int
}

// Slice returns the arguments. It shares their memory.
func (a *Arguments) Slice() []string { return a.list[:a.n] }

func (a *Arguments) add(s string) {
	a.list[a.n] = s
	a.n++
}

func (a *Arguments) addTTL(ttl time.Duration) { a.add(strconv.FormatInt(Milliseconds(ttl), 10)) }

// AcquireArguments returns the arguments of [Acquire].
func AcquireArguments(token string, ttl time.Duration, again bool) (a Arguments) {
	a.add(token)
	a.addTTL(ttl)
	if again {
		a.add("1")
	}
	return a
}

// AppendAcquireMany appends the arguments of one key of [AcquireMany].
func AppendAcquireMany(args []string, token string, ttl time.Duration, again bool) []string {
	flag := "0"
	if again {
		flag = "1"
	}
	return append(args, token, strconv.FormatInt(Milliseconds(ttl), 10), flag)
}

// ExtendArguments returns the arguments of [Extend].
func ExtendArguments(token string, ttl time.Duration) (a Arguments) {
	a.add(token)
	a.addTTL(ttl)
	return a
}

// AppendExtendMany appends the arguments of one key of [ExtendMany].
func AppendExtendMany(args []string, token string, ttl time.Duration) []string {
	return append(args, token, strconv.FormatInt(Milliseconds(ttl), 10))
}

// The commands that publish a release.
const (
	Publish      = "PUBLISH"  // to every client that listens, on a Cluster through every node
	ShardPublish = "SPUBLISH" // to those of the key's shard; Redis 7.0 and later
)

// ReleaseArguments returns the arguments of [Release]. An empty command publishes
// nothing.
func ReleaseArguments(token, command, channel string) (a Arguments) {
	a.add(token)
	if command != "" {
		a.add(channel)
		a.add(command)
	}
	return a
}

// HoldsArguments returns the arguments of [Holds].
func HoldsArguments(token string) (a Arguments) {
	a.add(token)
	return a
}

// TransferArguments returns the arguments of [Transfer].
func TransferArguments(from, token string, ttl time.Duration, again bool) (a Arguments) {
	a.add(from)
	a.add(token)
	a.addTTL(ttl)
	if again {
		a.add("1")
	}
	return a
}

// MaxFence is the largest fence: the largest integer that Lua and JSON keep exactly.
const MaxFence = 1<<53 - 1

// Fence is a fence as [Raise] and [Guard] take it.
func Fence(fence int64) string { return strconv.FormatInt(fence, 10) }
