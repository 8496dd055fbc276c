package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

func callContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func lease(key string) locco.Lease { return locco.Lease{Key: key, Token: "t", TTL: 30 * time.Second} }

func TestValidate(t *testing.T) {
	t.Parallel()
	client := newStub(t, func([]string) string { return "+OK\r\n" }).client(rueidis.ClientOption{})
	for _, tc := range []struct {
		name    string
		backend *redis.Backend
		field   string // "" if it is right
	}{
		{"Good", redis.New(client, nil, redis.WithoutWakeUps(), redis.WithReplication(1, time.Second)), ""},
		{"NilBackend", nil, "backend"},
		{"ZeroBackend", &redis.Backend{}, "redis client"},
		{"NilClient", redis.New(nil), "redis client"},
		{"NoReplicas", redis.New(client, redis.WithReplication(0, time.Second)), "redis.WithReplication"},
		{"NoTimeout", redis.New(client, redis.WithReplication(1, 0)), "redis.WithReplication"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := locco.New(tc.backend)
			var invalid *locco.ValidationError
			switch {
			case tc.field == "" && err != nil:
				t.Errorf("New error = %v; want none", err)
			case tc.field != "" && (!errors.As(err, &invalid) || invalid.Field != tc.field):
				t.Errorf("New error = %v; want a ValidationError of %q", err, tc.field)
			}
		})
	}
}

// spec 8.2: the wire format of an unfenced acquire.
func TestAcquireIsSet(t *testing.T) {
	t.Parallel()
	s := newStub(t, func([]string) string { return "$-1\r\n" })
	g, err := redis.New(s.client(rueidis.ClientOption{})).Acquire(callContext(t), lease("k"))
	if !g.OK || err != nil {
		t.Fatalf("Acquire = %+v, %v; want a grant", g, err)
	}
	if want := []string{"SET", "k", "t", "NX", "GET", "PX", "30000"}; len(s.commands) != 1 || !slices.Equal(s.commands[0], want) {
		t.Errorf("commands = %q; want %q", s.commands, want)
	}
}

// spec 2.6, 8.2: before Redis 7.0 SET does not take NX and GET together. Whose a refusing
// key is costs a question there; that the server is one is found out once.
func TestAcquireOnAnOldServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set, holds string
		ok         bool
		retryable  bool // the error, if there is to be one
		want       []string
	}{
		"Granted":   {"+OK\r\n", "", true, false, []string{"SET"}},
		"Refused":   {"$-1\r\n", ":0\r\n", false, false, []string{"SET", "EVALSHA"}},
		"Ours":      {"$-1\r\n", ":1\r\n", false, true, []string{"SET", "EVALSHA"}},
		"OtherType": {"$-1\r\n", "-ERR Error running script: WRONGTYPE Operation against a key\r\n", false, false, []string{"SET", "EVALSHA"}},
		"Unknown":   {"$-1\r\n", "-LOADING Redis is loading\r\n", false, true, []string{"SET", "EVALSHA"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(args []string) string {
				switch {
				case slices.Contains(args, "GET"):
					return "-ERR syntax error\r\n"
				case args[0] == "SET":
					return tc.set
				}
				return tc.holds
			})
			b := redis.New(s.client(rueidis.ClientOption{DisableRetry: true}))
			for _, want := range [][]string{append([]string{"SET"}, tc.want...), tc.want} {
				before := len(s.sent())
				g, err := b.Acquire(callContext(t), lease("k"))
				if g.OK != tc.ok || b.Retryable(err) != tc.retryable || err != nil && !tc.retryable {
					t.Errorf("Acquire = %+v, %v; want OK %v, an error that is Retryable: %v", g, err, tc.ok, tc.retryable)
				}
				if sent := s.sent()[before:]; !slices.Equal(sent, want) {
					t.Errorf("sent %q; want %q", sent, want)
				}
			}
		})
	}
}

// spec 2.6: the driver may send a request twice. What the second one meets is our own
// grant: an error that passes by itself, never somebody else's lock.
func TestOwnTokenIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(args []string) string {
		if args[0] == "SET" {
			return "$1\r\nt\r\n"
		}
		return "-OWNTOKEN the key has this token already\r\n"
	})
	for name, call := range grants {
		b := redis.New(s.client(rueidis.ClientOption{}))
		if ok, err := call(callContext(t), b, "k"); ok || !b.Retryable(err) {
			t.Errorf("%s = %v, %v; want an error that is Retryable", name, ok, err)
		}
	}
}

// grants are the calls that grant. Their token is t.
var grants = map[string]func(ctx context.Context, b *redis.Backend, key string) (ok bool, err error){
	"Acquire": func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		g, err := b.Acquire(ctx, lease(key))
		return g.OK, err
	},
	"AcquireFenced": func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		l := lease(key)
		l.Fenced = true
		g, err := b.Acquire(ctx, l)
		return g.OK, err
	},
	"AcquireMany": func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		_, refused, err := b.AcquireMany(ctx, []locco.Lease{lease(key)})
		return err == nil && refused < 0, err
	},
	"Transfer": func(ctx context.Context, b *redis.Backend, key string) (bool, error) {
		g, err := b.Transfer(ctx, "from", lease(key))
		return g.OK, err
	},
}

// spec 2.6: the driver's own retries must not turn a grant into a refusal. Here
// every write is applied and its answer lost: it must be an error, after one try.
func TestLostAnswerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		call func(ctx context.Context, b *redis.Backend) error
	}{
		{"Acquire", func(ctx context.Context, b *redis.Backend) error {
			_, err := b.Acquire(ctx, lease("k"))
			return err
		}},
		{"AcquireFenced", func(ctx context.Context, b *redis.Backend) error {
			l := lease("k")
			l.Fenced = true
			_, err := b.Acquire(ctx, l)
			return err
		}},
		{"AcquireMany", func(ctx context.Context, b *redis.Backend) error {
			_, _, err := b.AcquireMany(ctx, []locco.Lease{lease("a"), lease("b")})
			return err
		}},
		{"Transfer", func(ctx context.Context, b *redis.Backend) error {
			_, err := b.Transfer(ctx, "f", lease("k"))
			return err
		}},
		{"Extend", func(ctx context.Context, b *redis.Backend) error {
			_, err := b.Extend(ctx, lease("k"))
			return err
		}},
		{"Release", func(ctx context.Context, b *redis.Backend) error {
			_, err := b.Release(ctx, "k", "t")
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func([]string) string { return hangUp })
			b := redis.New(s.client(rueidis.ClientOption{}))
			err := tc.call(callContext(t), b)
			if !b.Retryable(err) {
				t.Errorf("error = %v; want one that is Retryable", err)
			}
			if sent := s.sent(); len(sent) != 1 {
				t.Errorf("commands = %q; want one", sent)
			}
		})
	}
}

func TestUnknownScriptIsSentWhole(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
		}
		return ":1\r\n"
	})
	ours, err := redis.New(s.client(rueidis.ClientOption{})).Release(callContext(t), "k", "t")
	if want := []string{"EVALSHA", "EVAL"}; !ours || err != nil || !slices.Equal(s.sent(), want) {
		t.Errorf("Release = %v, %v by %q; want true, <nil> by %q", ours, err, s.sent(), want)
	}
}

// spec 3.4: a lease that ends between the refusal and the question of what is left of
// it has an end that is known, so the waiter is not to sleep as if it had none.
func TestLeftOfLeaseThatJustEnded(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]time.Duration{
		":-2\r\n":             time.Millisecond, // gone
		":0\r\n":              time.Millisecond, // in its last millisecond
		":-1\r\n":             0,                // without end
		":7\r\n":              7 * time.Millisecond,
		"-ERR no such\r\n":    0, // not known
		"-NOPERM no pttl\r\n": 0,
	} {
		s := newStub(t, func(args []string) string {
			if args[0] == "SET" {
				return "$5\r\nother\r\n"
			}
			return answer
		})
		l := lease("k")
		l.WantLeft = true
		g, err := redis.New(s.client(rueidis.ClientOption{})).Acquire(callContext(t), l)
		if g.OK || err != nil || g.Left != want {
			t.Errorf("Acquire with PTTL %q = %+v, %v; want a refusal with %v left", answer, g, err, want)
		}
	}
}

func TestExtendManyHarmsNoOther(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
		}
		return "*3\r\n:1\r\n:0\r\n$14\r\nWRONGTYPE of k\r\n"
	})
	v := redis.New(s.client(rueidis.ClientOption{})).ExtendMany(callContext(t), []locco.Lease{lease("a"), lease("b"), lease("c")})
	if len(v) != 3 || !v[0].OK || v[1].OK || v[1].Err != nil || v[2].OK || v[2].Err == nil {
		t.Errorf("ExtendMany = %+v; want true, false, an error", v)
	}
}

// spec 1.9: a right that is missing is a validation error that says what is needed.
func TestMissingRight(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
		"ERR ACL failure in script: User u has no permissions to run the 'time' command script: 1, on @user_script:1.",
	} {
		s := newStub(t, func([]string) string { return "-" + text + "\r\n" })
		_, err := redis.New(s.client(rueidis.ClientOption{})).Release(callContext(t), "k", "t")
		var server *rueidis.RedisError
		if !errors.Is(err, locco.ErrInvalid) || !errors.As(err, &server) || !strings.Contains(err.Error(), "+evalsha") {
			t.Errorf("Release error = %v; want ErrInvalid with the server's error and +evalsha", err)
		}
	}
}

// spec 1.9: so it is where a script that goes on answers with it, for one key of many.
func TestMissingRightInVerdict(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"ERR The user executing the script can't run this command or subcommand",
		"ERR ACL failure in script: User u has no permissions to run the 'pexpire' command",
	} {
		s := newStub(t, func([]string) string { return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n:1\r\n", len(text), text) })
		v := redis.New(s.client(rueidis.ClientOption{})).ExtendMany(callContext(t), []locco.Lease{lease("a"), lease("b")})
		if len(v) != 2 || !errors.Is(v[0].Err, locco.ErrInvalid) || !strings.Contains(v[0].Err.Error(), "+pexpire") || !v[1].OK {
			t.Errorf("ExtendMany = %+v; want ErrInvalid that names +pexpire, true", v)
		}
	}
}

func TestReplication(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(args []string) string {
		switch args[0] {
		case "WAIT":
			return ":1\r\n"
		case "SET":
			return "$-1\r\n"
		}
		return ":1\r\n"
	})
	client := s.client(rueidis.ClientOption{})
	for _, tc := range []struct {
		replicas int
		want     bool
	}{{1, true}, {2, false}} {
		b := redis.New(client, redis.WithReplication(tc.replicas, time.Second))
		g, err := b.Acquire(callContext(t), lease("k"))
		var few *redis.ReplicationError
		if g.OK != tc.want || !tc.want && (!errors.As(err, &few) || *few != redis.ReplicationError{Wanted: 2, Acknowledged: 1}) {
			t.Errorf("Acquire, %d of 1 replicas = %+v, %v; want OK %v", tc.replicas, g, err, tc.want)
		}
		if ok, err := b.Extend(callContext(t), lease("k")); ok != tc.want || (err == nil) != tc.want {
			t.Errorf("Extend, %d of 1 replicas = %v, %v; want %v", tc.replicas, ok, err, tc.want)
		}
		short := lease("k")
		short.TTL = time.Second
		if _, err := b.Acquire(callContext(t), short); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("Acquire, TTL as long as the timeout: error = %v; want ErrInvalid", err)
		}
	}
}

// spec 3.7: what passes by itself is told apart from what stays.
func TestRetryable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":       true,
		"READONLY You can't write against a read only replica": true,
		"CLUSTERDOWN The cluster is down":                      true,
		"TRYAGAIN Multiple keys request during rehashing":      true,
		"MASTERDOWN Link with MASTER is down":                  true,
		"ERR max number of clients reached":                    true,
		"OOM command not allowed":                              false,
		"WRONGTYPE Operation against a key":                    false,
		"NOAUTH Authentication required.":                      false,
		"CROSSSLOT Keys in request don't hash":                 false,
		"ERR unknown command":                                  false,
	} {
		s := newStub(t, func([]string) string { return "-" + text + "\r\n" })
		b := redis.New(s.client(rueidis.ClientOption{DisableRetry: true}))
		_, err := b.Extend(callContext(t), lease("k"))
		if err == nil || b.Retryable(err) != want || b.Retryable(fmt.Errorf("wrapped: %w", err)) != want {
			t.Errorf("Retryable(%v) is not %v", err, want)
		}
	}
	var b *redis.Backend
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.EOF, true},
		{io.ErrUnexpectedEOF, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{rueidis.ErrNoAddr, true},
		{rueidis.ErrClosing, false},
		{context.DeadlineExceeded, false},
		{context.Canceled, false},
		{errors.ErrUnsupported, false},
		{&redis.ReplicationError{}, false},
		{&locco.ValidationError{Err: io.EOF}, false},
	} {
		if got := b.Retryable(tc.err); got != tc.want {
			t.Errorf("Retryable(%v) = %v; want %v", tc.err, got, tc.want)
		}
	}
}

// modeOnly is a client of which only the mode is asked.
type modeOnly struct {
	rueidis.Client
	mode rueidis.ClientMode
}

func (c modeOnly) Mode() rueidis.ClientMode { return c.mode }

// spec 3.7: at a failover, and when a node has gone, the driver closes the connection
// that it had, and calls on it end as if the client were closed. That passes.
func TestRetryableClosing(t *testing.T) {
	t.Parallel()
	for mode, want := range map[rueidis.ClientMode]bool{
		rueidis.ClientModeStandalone: false, // the caller has closed the client
		rueidis.ClientModeSentinel:   true,
		rueidis.ClientModeCluster:    true,
	} {
		b := redis.New(modeOnly{mode: mode})
		err := fmt.Errorf("wrapped: %w", rueidis.ErrClosing)
		if got := b.Retryable(err); got != want {
			t.Errorf("Retryable(%v) of a client of mode %s = %v; want %v", err, mode, got, want)
		}
	}
}

func TestWithoutWakeUps(t *testing.T) {
	t.Parallel()
	s := newStub(t, func([]string) string { return ":1\r\n" })
	b := redis.New(s.client(rueidis.ClientOption{}), redis.WithoutWakeUps())
	if _, _, err := b.Watch(callContext(t), "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch error = %v; want ErrUnsupported", err)
	}
	_, _ = b.Release(callContext(t), "k", "t")
	if n := len(s.commands[0]); n != 5 { // EVALSHA sha 1 k t
		t.Errorf("release = %q; want no channel", s.commands[0])
	}
}
