package integration_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// What the package comment of redis lists as the rights of a user. A driver needs a few
// more to connect.
var (
	connecting = strings.Fields("+hello +client +ping")
	rights     = strings.Fields("+evalsha +eval +set +get +del +pexpire +pttl +time")
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
			all := slices.Concat([]string{"+cluster"}, connecting, rights, shardWakes)
			everything(t, d, user(t, s, c.Nodes, d.name, []string{"~*", "&*", "-@all"}, all))
			admin := connect(t, c.Option())
			for right, refused := range map[string][]string{
				"+spublish":     {"watch again"},
				"+ssubscribe":   {"watch", "watch again"},
				"+sunsubscribe": nil,
			} {
				rest := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == right })
				wantRefused(t, admin, d.open(t, user(t, s, c.Nodes, d.name+right, []string{"~*", "&*", "-@all"}, rest)), d.name, right, refused...)
			}
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

// deed is one thing that a backend does, on a key of the test.
type deed struct {
	name string

	do func(ctx context.Context, b locco.Backend, key string) error

	held  bool // by the token "t" before
	other bool // by another before
	grant bool // stores a lease: a refusal must leave everything as it was
}

// deeds are all of them, in an order in which the second watch follows a release.
func deeds() []deed {
	lease := func(key string) locco.Lease { return locco.Lease{Key: key, Token: "t", TTL: time.Minute} }
	fenced := func(key string) locco.Lease {
		l := lease(key)
		l.Fenced, l.WantLeft = true, true
		return l
	}
	watch := func(ctx context.Context, b locco.Backend, key string) error {
		_, stop, err := b.(locco.Watcher).Watch(ctx, key)
		if err == nil {
			stop()
		}
		return err
	}
	return []deed{
		{name: "acquire", grant: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, err := b.Acquire(ctx, lease(key))
			return err
		}},
		{name: "fenced", grant: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, err := b.Acquire(ctx, fenced(key))
			return err
		}},
		{name: "refused", grant: true, other: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, err := b.Acquire(ctx, fenced(key))
			return err
		}},
		{name: "many", grant: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, _, err := b.(locco.ManyAcquirer).AcquireMany(ctx, []locco.Lease{fenced(key)})
			return err
		}},
		{name: "transfer", grant: true, held: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			to := fenced(key)
			to.Token = "next"
			_, err := b.(locco.Transferrer).Transfer(ctx, "t", to)
			return err
		}},
		{name: "extend", held: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, err := b.Extend(ctx, lease(key))
			return err
		}},
		{name: "extendmany", held: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			return b.(locco.ManyExtender).ExtendMany(ctx, []locco.Lease{lease(key)})[0].Err
		}},
		{name: "check", held: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, err := b.Holds(ctx, key, "t")
			return err
		}},
		{name: "watch", do: watch},
		{name: "release", held: true, do: func(ctx context.Context, b locco.Backend, key string) error {
			_, err := b.Release(ctx, key, "t")
			return err
		}},
		{name: "watch again", do: watch},
	}
}

// wantRefused does everything as a user who lacks a right, and checks that exactly what
// is named meets it: by a validation error, and with nothing stored.
func wantRefused(t *testing.T, admin rueidis.Client, b locco.Backend, tag, right string, refused ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key := "{acl" + tag + "}"
	counter := protocol.FenceKey(key)
	for _, d := range deeds() {
		do(t, admin, "DEL", key, counter)
		before := ""
		switch {
		case d.held:
			before = "t"
		case d.other:
			before = "other"
		}
		if before != "" {
			if err := do(t, admin, "SET", key, before, "PX", "60000").Error(); err != nil {
				t.Fatalf("SET: %v", err)
			}
		}
		err := d.do(ctx, b, key)
		if !slices.Contains(refused, d.name) {
			if err != nil {
				t.Errorf("without %s: %s = %v; want nil", right, d.name, err)
			}
			continue
		}
		var v *locco.ValidationError
		if !errors.As(err, &v) || !errors.Is(err, locco.ErrInvalid) || !strings.Contains(err.Error(), right) {
			t.Errorf("without %s: %s = %v; want a ValidationError that names it", right, d.name, err)
		}
		if v := get(t, admin, key); v != before {
			t.Errorf("without %s: %s was refused and the key has %q; want %q as before", right, d.name, v, before)
		}
		if v := get(t, admin, counter); d.grant && v != "" {
			t.Errorf("without %s: %s was refused and the counter has %q; want none", right, d.name, v)
		}
	}
}

// spec 1.9, 8.2: each right that is documented is needed: without it all that rests on it
// is a validation error, the rest works, and nothing is stored by halves.
func TestRedisEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	scripts := []string{"fenced", "refused", "many", "transfer", "extend", "extendmany", "check", "release"}
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		admin := n.Client(t)
		for right, refused := range map[string][]string{
			"+evalsha":     scripts,
			"+eval":        scripts, // the server knows none yet
			"+set":         {"acquire", "fenced", "many", "transfer"},
			"+get":         {"fenced", "refused", "many", "transfer", "extend", "extendmany", "check", "release"},
			"+del":         {"release"},
			"+pexpire":     {"extend", "extendmany"},
			"+pttl":        {"refused"},
			"+time":        {"fenced", "many", "transfer"},
			"+publish":     {"watch again"}, // a release is not refused
			"+subscribe":   {"watch", "watch again"},
			"+unsubscribe": nil, // the connection is closed in its place
		} {
			n.FlushScripts(t)
			all := slices.DeleteFunc(slices.Concat(connecting, rights, wakeUps), func(r string) bool { return r == right })
			s := user(t, at(n), []*integration.Node{n}, "without"+right, []string{"~*", "&*", "-@all"}, all)
			wantRefused(t, admin, d.open(t, s), "", right, refused...)
		}

		t.Run("Channels", func(t *testing.T) {
			s := user(t, at(n), []*integration.Node{n}, "deaf", []string{"~*", "resetchannels", "-@all"}, connecting, rights, wakeUps)
			wantRefused(t, admin, d.open(t, s), "", "channels", "watch", "watch again")
		})
		t.Run("ExtendMany", func(t *testing.T) { extendManyForbiddenKey(t, d, n, admin) })
		t.Run("ReleaseScript", func(t *testing.T) { releaseForbiddenPublish(t, n) })
		t.Run("Resource", func(t *testing.T) { resourceRights(t, n, admin) })
		t.Run("FenceKeys", func(t *testing.T) {
			s := user(t, at(n), []*integration.Node{n}, "unfenced", []string{"~{acl}", "&*", "-@all"}, connecting, rights, wakeUps)
			wantRefused(t, admin, d.open(t, s), "", "keys", "fenced", "refused", "many", "transfer")
		})
	})
}

// spec 8.5, 1.9: of many extensions the one whose key the user may not touch is refused,
// and harms no other.
func extendManyForbiddenKey(t *testing.T, d driver, n *integration.Node, admin rueidis.Client) {
	t.Helper()
	s := user(t, at(n), []*integration.Node{n}, "own", []string{"~own:*", "&*", "-@all"}, connecting, rights, wakeUps)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const foreign = 20
	leases := make([]locco.Lease, 40)
	for i := range leases {
		leases[i] = locco.Lease{Key: "own:" + strconv.Itoa(i), Token: "t", TTL: time.Hour}
		if i == foreign {
			leases[i].Key = "foreign"
		}
		if err := do(t, admin, "SET", leases[i].Key, "t", "PX", "60000").Error(); err != nil {
			t.Fatalf("SET: %v", err)
		}
	}
	for i, v := range d.open(t, s).(locco.ManyExtender).ExtendMany(ctx, leases) {
		if v.OK == (i == foreign) || errors.Is(v.Err, locco.ErrInvalid) != (i == foreign) {
			t.Errorf("verdict of %s = %+v; want ErrInvalid for the foreign key alone", leases[i].Key, v)
		}
	}
	if ms, err := do(t, admin, "PTTL", "foreign").AsInt64(); err != nil || ms > 60000 {
		t.Errorf("PTTL of the foreign key = %d, %v; want it as it was", ms, err)
	}
}

// spec 8.2: a key is freed though the message about it is not allowed, and the answer
// says so.
func releaseForbiddenPublish(t *testing.T, n *integration.Node) {
	t.Helper()
	for name, rules := range map[string][]string{
		"command":  {"~*", "&*", "+@all", "-publish"},
		"channels": {"~*", "resetchannels", "+@all"},
	} {
		s := user(t, at(n), []*integration.Node{n}, name, rules)
		c := n.Client(t, func(o *rueidis.ClientOption) { o.Username, o.Password = s.user, s.password })
		set(t, c, "k", "token")
		args := protocol.ReleaseArguments("token", protocol.Publish, protocol.Channel("k"))
		got, err := do(t, c, append([]string{"EVAL", protocol.Release.Source, "1", "k"}, args.Slice()...)...).AsInt64()
		if err != nil || got != protocol.FreedSilently {
			t.Errorf("release without the right to the %s = %d, %v; want %d", name, got, err, protocol.FreedSilently)
		}
		if v := get(t, c, "k"); v != "" {
			t.Errorf("the key has %q; want nothing", v)
		}
	}
}
