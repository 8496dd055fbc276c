package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// ErrStale means that a later holder has claimed the resource. [StaleError] has the
// details.
var ErrStale = errors.New("locco: a later holder has claimed the resource")

// StaleError says that the fence is smaller than one that the resource has seen.
// Nothing was written. It matches [ErrStale].
type StaleError struct {
	Resource string
	Fence    int64
	Seen     int64 // the highest fence so far
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("locco: resource %q has seen fence %d; %d is stale", e.Resource, e.Seen, e.Fence)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Resource is data kept in Redis that a fenced lock protects. It refuses what comes
// from an earlier holder, whatever that holder believes: the highest fence seen is
// kept beside the data, in "{name}:locco-mark", or "name:locco-mark" if the name has
// a hash tag. The mark does not expire. All who write to the data do so through it.
//
// The server of the data need not be that of the locks.
type Resource struct {
	client rueidis.Client
	name   string
}

// NewResource returns the resource called name, on the caller's client. On a Cluster
// the name decides in which slot the mark is, and the keys of a guarded command must
// be in the same: give them a common hash tag.
func NewResource(client rueidis.Client, name string) *Resource {
	return &Resource{client: client, name: name}
}

// Raise claims the resource for fence: from now on every smaller one is refused with
// a [*StaleError]. Call it before the first read of the data, so that no earlier
// holder can change what was read. An equal fence passes. It may be repeated when there was
// no answer in time, for which the error is [locco.ErrLate] or that of ctx.
func (r *Resource) Raise(ctx context.Context, fence int64) error {
	if err := r.check(fence); err != nil {
		return err
	}
	answer, late := r.run(ctx, &protocol.Raise, []string{protocol.MarkKey(r.name)}, []string{protocol.Fence(fence)})
	seen, err := answer.AsInt64()
	return r.stale(seen, fence, late(err))
}

// Guard runs a command that writes, in one step with the check that no larger fence
// was seen; else it is refused with a [*StaleError] and not run. It claims the
// resource as [Resource.Raise] does. keys are the keys in command. The result is the
// command's.
//
//	r.Guard(ctx, lock.Fence(), []string{"{account:1}:balance"}, "SET", "{account:1}:balance", "17")
//
// An error of the command itself leaves the claim. Without an answer in time it is not
// known whether the command has run; the error then matches [locco.ErrLate], or is that of
// ctx.
func (r *Resource) Guard(ctx context.Context, fence int64, keys []string, command ...string) (rueidis.RedisMessage, error) {
	if len(command) == 0 {
		return rueidis.RedisMessage{}, &locco.ValidationError{Field: "command", Value: command, Rule: "must not be empty"}
	}
	if err := r.check(fence); err != nil {
		return rueidis.RedisMessage{}, err
	}
	mark := protocol.MarkKey(r.name)
	if err := r.checkSlots(mark, keys); err != nil {
		return rueidis.RedisMessage{}, err
	}
	all := append([]string{mark}, keys...)
	args := append([]string{protocol.Fence(fence)}, command...)
	answer, late := r.run(ctx, &protocol.Guard, all, args)
	list, err := answer.ToArray()
	if err != nil || len(list) == 0 {
		return rueidis.RedisMessage{}, explain(late(err))
	}
	seen, err := list[0].AsInt64()
	if err := r.stale(seen, fence, err); err != nil || len(list) < 2 {
		return rueidis.RedisMessage{}, err
	}
	return list[1], nil
}

func (r *Resource) stale(seen, fence int64, err error) error {
	switch {
	case err != nil:
		return explain(err)
	case seen != 0:
		return &StaleError{Resource: r.name, Fence: fence, Seen: seen}
	}
	return nil
}

// resourceTimeout, ten seconds, is for a context without a deadline: one that can be canceled but
// has none would put the driver's connection into its slower mode for good.
const resourceTimeout = 10 * time.Second

// check finds before any I/O what is wrong with a claim for fence.
func (r *Resource) check(fence int64) error {
	switch {
	case r == nil || isNil(r.client):
		return &locco.ValidationError{Field: "redis client", Rule: "must not be nil"}
	case r.name == "":
		return &locco.ValidationError{Field: "resource", Value: r.name, Rule: "must not be empty"}
	case fence < 1 || fence > protocol.MaxFence:
		return &locco.ValidationError{
			Field: "fence", Value: fence, Rule: "must come from a fenced lock (locco.WithFencing)",
		}
	}
	return nil
}

// checkSlots finds keys that cannot be in one script with mark, for which the driver
// would panic.
func (r *Resource) checkSlots(mark string, keys []string) error {
	if r.client.Mode() != rueidis.ClientModeCluster {
		return nil
	}
	for _, key := range keys {
		if protocol.Slot(key) != protocol.Slot(mark) {
			return &locco.ValidationError{
				Field: "keys", Value: key, Rule: "must be in the slot of the resource, that of " + mark + ": give them a common hash tag",
			}
		}
	}
	return nil
}

// run runs a script. Its errors go through late: a timeout of ours or of the driver must
// not look like the end of the caller's context (spec 7.2).
func (r *Resource) run(ctx context.Context, s *protocol.Script, keys, args []string) (answer rueidis.RedisResult, late func(error) error) {
	began, call := time.Now(), ctx
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		call, cancel = context.WithTimeout(ctx, resourceTimeout)
		defer cancel()
	}
	b := Backend{client: r.client}
	answer = b.read(call, s, keys, args)
	return answer, func(err error) error {
		timeout := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
		// The driver's timer may run before that of ctx.
		if d, ok := ctx.Deadline(); !timeout || ctx.Err() != nil || ok && !time.Now().Before(d) {
			return err
		}
		return &locco.LateError{Key: r.name, Attempts: 1, Elapsed: time.Since(began), Err: err}
	}
}
