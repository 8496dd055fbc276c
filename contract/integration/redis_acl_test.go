package integration_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// What the package comment of redis lists as the rights of a user. A driver needs a few
// more to connect.
var (
	connecting = []string{"+hello", "+client", "+ping", "+select"}
	rights     = strings.Fields("+evalsha +eval +set +get +exists +del +pexpire +pttl +time")
	wakeUps    = strings.Fields("+publish +subscribe +unsubscribe")
	shardWakes = strings.Fields("+spublish +ssubscribe +sunsubscribe")
)

// user makes a user with the rules, and returns settings to connect as that one.
func user(t *testing.T, s settings, nodes []*integration.Node, name string, rules ...[]string) settings {
	t.Helper()
	const password = "secret"
	command := []string{"ACL", "SETUSER", name, "reset", "on", ">" + password}
	for _, r := range rules {
		command = append(command, r...)
	}
	for _, n := range nodes {
		if _, err := n.Do(t.Context(), command...); err != nil {
			t.Fatalf("ACL SETUSER: %v", err)
		}
	}
	s.user, s.password = name, password
	return s
}

// spec 1.9, 8.2: exactly the rights that are documented are enough for everything.
func TestRedisRightsAreEnough(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		everything(t, d, user(t, at(n), []*integration.Node{n}, "app", []string{"~*", "&*", "-@all"}, connecting, rights, wakeUps))
	})
}

// spec 1.9, 8.2: on a Cluster it is the sharded channels that count.
func TestRedisRightsAreEnoughOnCluster(t *testing.T) {
	t.Parallel()
	c := integration.StartCluster(t, integration.Redis8)
	for _, d := range drivers() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := settings{addrs: c.Addrs(), cluster: true}
			everything(t, d, user(t, s, c.Nodes, d.name, []string{"~*", "&*", "-@all", "+cluster", "+asking", "+readonly"}, connecting, rights, shardWakes))
		})
	}
}

// everything does all that a backend can do.
func everything(t *testing.T, d driver, s settings) {
	t.Helper()
	for _, opts := range [][]locco.Option{nil, {locco.WithFencing()}} {
		tag := "{" + s.user + "}:"
		key := tag + "k"
		l, other := newLocker(t, d.open(t, s), opts...), newLocker(t, d.open(t, s), opts...)
		lock := take(t, l, key, time.Minute)
		wantHeld(t, lock)
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend = %v", err)
		}
		local := await(t, l, key, time.Minute)
		time.Sleep(100 * time.Millisecond) // else nothing is handed over, which is tested too
		release(t, lock)
		lock = got(t, local)
		far := make(chan taken, 1)
		awaitWoken(t, other, key, far)
		time.Sleep(200 * time.Millisecond) // for the watch to be there
		release(t, lock)
		release(t, got(t, far))
		set, err := l.AcquireMany(t.Context(), []string{tag + "a", tag + "b"}, time.Minute)
		if err != nil {
			t.Fatalf("AcquireMany = %v", err)
		}
		if err := errors.Join(set.Extend(t.Context(), time.Minute), set.Release(t.Context())); err != nil {
			t.Errorf("Extend and Release of a set = %v", err)
		}
	}
}

// spec 1.9: a right that is missing is a validation error that says what is needed, and
// nothing is stored.
func TestRedisRightsMissing(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		nodes := []*integration.Node{n}
		admin := n.Client(t)
		invalid := func(t *testing.T, err error, word string) {
			t.Helper()
			var v *locco.ValidationError
			if !errors.As(err, &v) || !strings.Contains(v.Error(), word) {
				t.Errorf("%v; want a ValidationError that names %s", err, word)
			}
		}
		for name, tc := range map[string]struct {
			rules  []string
			fenced bool // needed to meet it
		}{
			"eval":  {[]string{"~*", "&*", "+@all", "-eval", "-evalsha"}, true},
			"time":  {[]string{"~*", "&*", "+@all", "-time"}, true},
			"set":   {[]string{"~*", "&*", "+@all", "-set"}, false},
			"fence": {[]string{"~k", "&*", "+@all"}, true},
		} {
			t.Run("Acquire/"+name, func(t *testing.T) {
				var opts []locco.Option
				if tc.fenced {
					opts = append(opts, locco.WithFencing())
				}
				l := newLocker(t, d.open(t, user(t, at(n), nodes, name, tc.rules)), opts...)
				_, err := l.Acquire(t.Context(), "k", time.Minute)
				word := "+" + name
				if name == "fence" {
					word = "fences"
				}
				invalid(t, err, word)
				if v := get(t, admin, "k"); v != "" {
					t.Errorf("the key has %q after the refusal; want nothing", v)
				}
			})
		}

		for name, rules := range map[string][]string{
			"publish":  {"~*", "&*", "+@all", "-publish"},
			"channels": {"~*", "resetchannels", "+@all"},
		} {
			t.Run("Release/"+name, func(t *testing.T) {
				b := d.open(t, user(t, at(n), nodes, "no"+name, rules))
				l := newLocker(t, b)
				key := "quiet:" + name
				release(t, take(t, l, key, time.Minute)) // it frees all the same
				if v := get(t, admin, key); v != "" {
					t.Errorf("the key has %q after its release; want nothing", v)
				}
				_, stop, err := b.(locco.Watcher).Watch(t.Context(), key)
				if err == nil {
					stop()
				}
				invalid(t, err, "publish")
				// Waiters look by themselves.
				lock := take(t, l, key, time.Minute)
				next := await(t, newLocker(t, b), key, time.Minute)
				release(t, lock)
				release(t, got(t, next))
			})
		}

		t.Run("Watch/subscribe", func(t *testing.T) {
			b := d.open(t, user(t, at(n), nodes, "nosubscribe", []string{"~*", "&*", "+@all", "-subscribe"}))
			_, stop, err := b.(locco.Watcher).Watch(t.Context(), "k")
			if err == nil {
				stop()
			}
			invalid(t, err, "+subscribe")
		})
	})
}

// spec 8.2: a server that does not know the command that publishes frees the key all the
// same, and says so; one that forbids it says that.
func TestRedisReleaseScriptWithoutPublish(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		c := integration.SharedRedis(t, r).Client(t)
		key := t.Name()
		for command, want := range map[string]int64{"NOSUCH": protocol.FreedUnheard, protocol.Publish: protocol.Freed} {
			set(t, c, key, "token")
			args := protocol.ReleaseArguments("token", command, protocol.Channel(key))
			n, err := do(t, c, append([]string{"EVAL", protocol.Release.Source, "1", key}, args.Slice()...)...).AsInt64()
			if err != nil || n != want {
				t.Errorf("release with %s = %d, %v; want %d", command, n, err, want)
			}
			if v := get(t, c, key); v != "" {
				t.Errorf("the key has %q; want nothing", v)
			}
		}
	})
}
