package redis_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
	"github.com/locco-go/locco/redis/protocol"
)

// acknowledging are the options that wait for something after a write.
var acknowledging = map[string]redis.Option{
	"WAIT":    redis.WithReplication(1, time.Second),
	"WAITAOF": redis.WithDurability(1, time.Second),
}

// writers are the calls after which there is something to wait for.
var writers = map[string]func(ctx context.Context, b *redis.Backend) error{
	"Acquire": func(ctx context.Context, b *redis.Backend) error {
		_, err := b.Acquire(ctx, lease("k"))
		return err
	},
	"AcquireMany": func(ctx context.Context, b *redis.Backend) error {
		_, _, err := b.AcquireMany(ctx, []locco.Lease{lease("k")})
		return err
	},
	"Transfer": func(ctx context.Context, b *redis.Backend) error {
		_, err := b.Transfer(ctx, "f", lease("k"))
		return err
	},
	"Extend": func(ctx context.Context, b *redis.Backend) error {
		_, err := b.Extend(ctx, lease("k"))
		return err
	},
	"ExtendMany": func(ctx context.Context, b *redis.Backend) error {
		return b.ExtendMany(ctx, []locco.Lease{lease("k")})[0].Err
	},
}

// granting answers the writers' commands as a server does that has nothing against them.
func granting(args []string, wait string) string {
	switch {
	case args[0] == "WAIT", args[0] == "WAITAOF":
		return wait
	case args[0] == "SET":
		return "$-1\r\n"
	case args[1] == protocol.ExtendMany.SHA:
		return "*1\r\n:1\r\n"
	case args[1] == protocol.AcquireMany.SHA:
		return "*2\r\n:0\r\n:1\r\n"
	}
	return ":1\r\n"
}

// spec 1.9, 8.2: a server or a user that cannot wait is found out before anything is
// written, since a validation error says that nothing was stored.
func TestAcknowledgementsImpossible(t *testing.T) {
	t.Parallel()
	for command, option := range acknowledging {
		for text, invalid := range map[string]bool{
			"NOPERM User u has no permissions to run the '" + strings.ToLower(command) + "' command":           true,
			"ERR unknown command '" + command + "', with args beginning with: '1' '0' '1'":                     true,
			"ERR " + command + " cannot be used when numlocal is set but appendonly is disabled.":              true,
			"LOADING Redis is loading the dataset in memory":                                                   false,
			"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                 false,
			"ERR " + command + " cannot be used with replica instances. Please also note that it was demoted.": false,
		} {
			for name, call := range writers {
				s := newStub(t, func(args []string) string { return granting(args, "-"+text+"\r\n") })
				b := redis.New(s.client(rueidis.ClientOption{DisableRetry: true}), option)
				err := call(callContext(t), b)
				var v *locco.ValidationError
				switch {
				case invalid && (!errors.As(err, &v) || v.Err == nil):
					t.Errorf("%s, %q = %v; want a ValidationError with the server's", name, text, err)
				case !invalid && (errors.Is(err, locco.ErrInvalid) || !b.Retryable(err)):
					t.Errorf("%s, %q = %v; want an error that is Retryable", name, text, err)
				}
				if sent := s.sent(); !slices.Equal(sent, []string{command}) {
					t.Errorf("%s, %q: sent %q; want nothing that writes", name, text, sent)
				}
			}
		}
	}
}

// spec 2.6, 8.2: a server that cannot wait any more says so after it has written. This is
// not ErrInvalid, so that the key is given back. The next call finds it out before.
func TestAcknowledgementsNoLongerPossible(t *testing.T) {
	t.Parallel()
	for command, option := range acknowledging {
		for name, call := range writers {
			var waits atomic.Int32
			s := newStub(t, func(args []string) string {
				switch {
				case args[0] != command:
					return granting(args, "")
				case waits.Add(1) > 1:
					return "-NOPERM User u has no permissions to run the command\r\n"
				case command == "WAITAOF":
					return "*2\r\n:1\r\n:1\r\n"
				}
				return ":1\r\n"
			})
			b := redis.New(s.client(rueidis.ClientOption{DisableRetry: true}), option)
			if err := call(callContext(t), b); err == nil || errors.Is(err, locco.ErrInvalid) {
				t.Errorf("%s, %s = %v; want an error that is not ErrInvalid", name, command, err)
			}
			before := len(s.sent())
			if err := call(callContext(t), b); !errors.Is(err, locco.ErrInvalid) {
				t.Errorf("%s, %s, again = %v; want ErrInvalid", name, command, err)
			}
			if sent := s.sent()[before:]; !slices.Equal(sent, []string{command}) {
				t.Errorf("%s, %s, again: sent %q; want nothing that writes", name, command, sent)
			}
		}
	}
}

// spec 8.2: what WAITAOF answers, and that it follows the write at once.
func TestDurability(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]*redis.ReplicationError{
		"*2\r\n:1\r\n:1\r\n": nil,
		"*2\r\n:1\r\n:0\r\n": {Wanted: 1, Acknowledged: 0},
		"*2\r\n:0\r\n:1\r\n": {Wanted: 1, Acknowledged: 1, Unsynced: true},
		"*2\r\n:0\r\n:0\r\n": {Wanted: 1, Acknowledged: 0, Unsynced: true},
	} {
		for name, call := range writers {
			s := newStub(t, func(args []string) string { return granting(args, answer) })
			b := redis.New(s.client(rueidis.ClientOption{}), redis.WithDurability(1, time.Second))
			err := call(callContext(t), b)
			var few *redis.ReplicationError
			switch {
			case want == nil && err != nil:
				t.Errorf("%s, %q = %v; want none", name, answer, err)
			case want != nil && (!errors.As(err, &few) || *few != *want):
				t.Errorf("%s, %q = %v; want %v", name, answer, err, want)
			}
			last := s.commands[len(s.commands)-1]
			if w := []string{"WAITAOF", "1", "1", "1000"}; len(s.commands) != 3 || !slices.Equal(last, w) {
				t.Errorf("%s: commands = %q; want %q behind the write", name, s.commands, w)
			}
		}
	}
}
