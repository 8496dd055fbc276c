package integration_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// eachTopology runs the test on one server of each kind: starting several servers
// for a test takes longer than the test.
func eachTopology(t *testing.T, test func(t *testing.T, r integration.Redis)) {
	t.Helper()
	for _, r := range []integration.Redis{integration.Redis8, integration.Valkey8} {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
}

// atOnce runs the tests of every driver at the same time, and returns when all have
// ended.
func atOnce(t *testing.T, name string, tests map[string]func(t *testing.T, d driver)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for _, d := range drivers() {
			for name, test := range tests {
				t.Run(name+"/"+d.name, func(t *testing.T) {
					t.Parallel()
					test(t, d)
				})
			}
		}
	})
}

// patience is for what should happen soon, on a busy machine too.
const patience = 30 * time.Second

// soon waits until cond is true.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// take acquires a key that should be free, or become so.
func take(t *testing.T, l *locco.Locker, key string, ttl time.Duration, opts ...locco.CallOption) *locco.Lock {
	t.Helper()
	opts = append([]locco.CallOption{locco.RetryTimeout(patience), locco.RetryDelay(50 * time.Millisecond)}, opts...)
	lock, err := l.Acquire(t.Context(), key, ttl, opts...)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", key, err)
	}
	return lock
}

// taken is the outcome of an Acquire in the background.
type taken struct {
	lock *locco.Lock
	err  error
}

// await waits for a key, for as long as it takes.
func await(t *testing.T, l *locco.Locker, key string, ttl time.Duration) <-chan taken {
	t.Helper()
	c := make(chan taken, 1)
	go func() {
		lock, err := l.Acquire(t.Context(), key, ttl, locco.RetryForever(), locco.RetryDelay(50*time.Millisecond))
		c <- taken{lock, err}
	}()
	return c
}

// got is the lock that await has got.
func got(t *testing.T, c <-chan taken) *locco.Lock {
	t.Helper()
	select {
	case r := <-c:
		if r.err != nil {
			t.Fatalf("Acquire of a waiter: %v", r.err)
		}
		return r.lock
	case <-time.After(patience):
		t.Fatalf("a waiter has nothing after %s", patience)
		return nil
	}
}

// wantHeld checks that the holder and the server agree on who has the key.
func wantHeld(t *testing.T, lock *locco.Lock) {
	t.Helper()
	if err := lock.Check(t.Context()); err != nil || lock.State() != locco.StateHeld {
		t.Errorf("Check(%q) = %v, state %s; want a lock that is held", lock.Key(), err, lock.State())
	}
}

// wantFailure checks that a call failed without having heard that somebody has the
// key.
func wantFailure(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, locco.ErrHeld) || errors.Is(err, locco.ErrInvalid) {
		t.Errorf("%s = %v; want late or the driver's error, which says nothing about a holder (spec 2.2)", what, err)
	}
}

// release checks that a release found the key ours.
func release(t *testing.T, lock *locco.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("Release(%q) = %v; want it freed", lock.Key(), err)
	}
}

// journal keeps what a locker reports.
type journal struct {
	mu     sync.Mutex // guards events
	events []locco.Event
}

func (j *journal) option() locco.Option {
	return locco.WithEvents(func(e locco.Event) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.events = append(j.events, e)
	})
}

// of returns what was reported about a key.
func (j *journal) of(key string, kind locco.EventKind) (list []locco.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e.Key == key && e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// more waits for n further events.
func (j *journal) more(t *testing.T, n int, key string, kind locco.EventKind) {
	t.Helper()
	before := len(j.of(key, kind))
	soon(t, fmt.Sprintf("%d events %q of %q", n, kind, key), func() bool { return len(j.of(key, kind)) >= before+n })
}

// cluster is one that the tests of a server share.
type cluster struct {
	*integration.Cluster
	admin rueidis.Client
	moves sync.Mutex // two nodes that take slots over at the same time may disagree about them
}

func (c *cluster) settings() settings { return settings{addrs: c.Addrs(), cluster: true} }

// keyOn returns a fresh key on a node, with something around a random part.
func (c *cluster) keyOn(t *testing.T, node int, before, after string) string {
	t.Helper()
	for {
		if key := before + rand.Text() + after; c.Owner(t, key) == node {
			return key
		}
	}
}

// move begins to move the slot of a key to the next node.
func (c *cluster) move(t *testing.T, key string) *move {
	t.Helper()
	from := c.Owner(t, key)
	m := &move{
		c: c, slot: strconv.Itoa(c.Slot(t, key)),
		from: c.Nodes[from], to: c.Nodes[(from+1)%len(c.Nodes)],
	}
	var err error
	if _, m.port, err = net.SplitHostPort(m.to.Addr); err != nil {
		t.Fatal(err)
	}
	m.fromID, m.toID = text(t, m.from, "CLUSTER", "MYID"), text(t, m.to, "CLUSTER", "MYID")
	text(t, m.to, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.fromID)
	text(t, m.from, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.toID)
	return m
}

// move is a slot on its way.
type move struct {
	c            *cluster
	slot, port   string
	from, to     *integration.Node
	fromID, toID string
}

// key moves one key.
func (m *move) key(t *testing.T, key string) {
	t.Helper()
	if answer := text(t, m.from, "MIGRATE", "127.0.0.1", m.port, key, "0", "5000"); answer != "OK" {
		t.Fatalf("MIGRATE %s = %s; want OK", key, answer)
	}
}

// end moves the slot.
func (m *move) end(t *testing.T) {
	t.Helper()
	m.c.moves.Lock()
	defer m.c.moves.Unlock()
	nodes := []*integration.Node{m.to, m.from}
	for _, n := range m.c.Nodes {
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		text(t, n, "CLUSTER", "SETSLOT", m.slot, "NODE", m.toID)
	}
	m.c.WaitOK(t)
}

// text is the answer of one server.
func text(t *testing.T, n *integration.Node, args ...string) string {
	t.Helper()
	m, err := n.Do(t.Context(), args...)
	if rueidis.IsRedisNil(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.ToString()
	if err != nil {
		t.Fatalf("%s on %s: %v", args, n.Name, err)
	}
	return s
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartCluster(t, r, "--cluster-require-full-coverage", "no")
		c := &cluster{Cluster: s, admin: connect(t, s.Option())}

		// Alone, because it counts commands.
		for _, d := range drivers() {
			t.Run("OneStep/"+d.name, func(t *testing.T) { testClusterOneStep(t, d, c) })
		}
		// Before the rest, of which a key may be in a slot that moves.
		atOnce(t, "Moves", map[string]func(t *testing.T, d driver){
			"Slot":    func(t *testing.T, d driver) { testClusterSlotMoves(t, d, c) },
			"Lock":    func(t *testing.T, d driver) { testClusterHalfMoved(t, d, c, false) },
			"Counter": func(t *testing.T, d driver) { testClusterHalfMoved(t, d, c, true) },
		})
		atOnce(t, "Works", map[string]func(t *testing.T, d driver){
			"Contract":    func(t *testing.T, d driver) { testClusterContract(t, d, c) },
			"Keys":        func(t *testing.T, d driver) { testClusterKeys(t, d, c) },
			"AcquireMany": func(t *testing.T, d driver) { testClusterAcquireMany(t, d, c) },
			"ExtendMany":  func(t *testing.T, d driver) { testClusterExtendMany(t, d, c) },
		})
		testClusterNodeFails(t, c)
	})
}

// spec 9.1, 8.2: the backend passes the suite on a Cluster.
func testClusterContract(t *testing.T, d driver, c *cluster) {
	contract.Run(t, contract.Harness{
		New: func(t *testing.T) locco.Backend { t.Helper(); return d.open(t, c.settings()) },
		Peer: func(t *testing.T, _ locco.Backend) locco.Backend {
			t.Helper()
			return d.open(t, c.settings())
		},
		Keys: func(unique string, n int) []string {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprintf("{%s}:%d", unique, i)
			}
			return keys
		},
		InvalidKey: func(key string, fenced bool) bool { return fenced && !protocol.SharesSlot(key) },
	})
}

// spec 8.2: a set whose keys share a slot is taken in one step, by one script.
func testClusterOneStep(t *testing.T, d driver, c *cluster) {
	for _, fenced := range []bool{false, true} {
		var opts []locco.Option
		if fenced {
			opts = append(opts, locco.WithFencing())
		}
		l := newLocker(t, d.open(t, c.settings()), opts...)
		tag := "{" + rand.Text() + "}:"
		keys := []string{tag + "d", tag + "a", tag + "c", tag + "b", tag + "e"}
		for _, first := range []bool{true, false} { // at first the server may not know the script
			for _, n := range c.Nodes {
				text(t, n, "CONFIG", "RESETSTAT")
			}
			set, err := l.AcquireMany(t.Context(), keys, time.Minute)
			if err != nil {
				t.Fatalf("AcquireMany(keys of one slot): %v", err)
			}
			if n := scripts(t, c); !first && n != 1 {
				t.Errorf("AcquireMany(%d keys of one slot, fenced %v) took %d calls of scripts; want 1 (spec 8.2)", len(keys), fenced, n)
			}
			for _, lock := range set.Locks() {
				if stored := get(t, c.admin, lock.Key()); stored != lock.Token() {
					t.Errorf("%q has the token %q; want that of its lock", lock.Key(), stored)
				}
				if (lock.Fence() > 0) != fenced {
					t.Errorf("%q has the fence %d", lock.Key(), lock.Fence())
				}
			}
			if err := set.Release(t.Context()); err != nil {
				t.Errorf("Release of the set: %v", err)
			}
		}
	}
}

// scripts is how many calls of scripts the nodes have seen.
func scripts(t *testing.T, c *cluster) (n int) {
	t.Helper()
	for _, node := range c.Nodes {
		for line := range strings.Lines(text(t, node, "INFO", "commandstats")) {
			command, stats, _ := strings.Cut(line, ":calls=")
			if command == "cmdstat_evalsha" || command == "cmdstat_eval" {
				calls, _, _ := strings.Cut(stats, ",")
				k, err := strconv.Atoi(calls)
				if err != nil {
					t.Fatalf("INFO commandstats has %q: %v", line, err)
				}
				n += k
			}
		}
	}
	return n
}

// spec 8.2: the counter of a key is in the slot of the key, whether or not it has a
// hash tag. Where that cannot be, only a fenced grant is refused.
func testClusterKeys(t *testing.T, d driver, c *cluster) {
	fenced := newLocker(t, d.open(t, c.settings()), locco.WithFencing())
	plain := newLocker(t, d.open(t, c.settings()))
	for name, key := range map[string]string{
		"HashTag":   "a:{" + rand.Text() + "}:b",
		"None":      rand.Text(),
		"OpenBrace": "a{" + rand.Text(),
		"Nested":    "{{" + rand.Text() + "}}",
	} {
		w := &witness{}
		for range 2 {
			lock := take(t, fenced, key, time.Minute)
			w.granted(t, lock)
			if counter := get(t, c.admin, protocol.FenceKey(key)); counter != strconv.FormatInt(lock.Fence(), 10) {
				t.Errorf("%s: %q has %q; want the fence %d", name, protocol.FenceKey(key), counter, lock.Fence())
			}
			release(t, lock)
		}
	}
	for name, key := range map[string]string{
		"CloseBrace": rand.Text() + "}",
		"EmptyTag":   "{}" + rand.Text(),
	} {
		_, err := fenced.TryAcquire(t.Context(), key, time.Minute)
		var invalid *locco.ValidationError
		if !errors.As(err, &invalid) || invalid.Field != "key" {
			t.Errorf("%s: fenced TryAcquire(%q) = %v; want a *ValidationError about the key", name, key, err)
		}
		lock := take(t, plain, key, time.Minute)
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("%s: Extend(%q) = %v", name, key, err)
		}
		wantHeld(t, lock)
		release(t, lock)
		if stored := get(t, c.admin, key); stored != "" {
			t.Errorf("%s: %q has the token %q after its release", name, key, stored)
		}
	}
}

// spec 2.5, 8.2: a set over several slots is taken one by one in sorted order, all
// or none. The backend itself says that it cannot in one step.
func testClusterAcquireMany(t *testing.T, d driver, c *cluster) {
	b := d.open(t, c.settings())
	many, ok := b.(locco.ManyAcquirer)
	if !ok {
		t.Fatalf("%T is no ManyAcquirer", b)
	}
	prefix := rand.Text() + ":"
	var keys []string
	for node := range c.Nodes { // "0:…" is on the first node, and so on
		keys = append(keys, c.keyOn(t, node, prefix+strconv.Itoa(node)+":", ""))
	}
	var leases []locco.Lease
	for _, key := range keys {
		leases = append(leases, locco.Lease{Key: key, Token: rand.Text(), TTL: time.Minute, Fenced: true})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := many.AcquireMany(ctx, leases); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "slots") {
		t.Errorf("AcquireMany of the backend over several slots = %v; want errors.ErrUnsupported that speaks of slots", err)
	}
	stored := func() (have []bool) {
		for _, key := range keys {
			have = append(have, get(t, c.admin, key) != "")
		}
		return have
	}
	if have := stored(); slices.Contains(have, true) {
		t.Fatalf("AcquireMany of the backend over several slots has stored %v", have)
	}

	j := &journal{}
	l := newLocker(t, b, locco.WithFencing(), j.option())
	other := newLocker(t, d.open(t, c.settings()), locco.WithFencing())
	wanted := []string{keys[2], keys[0], keys[1]}
	for i, key := range keys {
		w := &witness{}
		held := take(t, other, key, time.Minute)
		w.granted(t, held)
		before := stored()

		// None: the error names the key, and those before it are free again.
		_, err := l.AcquireMany(t.Context(), wanted, time.Minute, locco.Retries(1), locco.RetryDelay(0))
		var refused *locco.HeldError
		if !errors.As(err, &refused) || refused.Key != key {
			t.Errorf("AcquireMany with %q held = %v; want ErrHeld about it", key, err)
		}
		if have := stored(); !slices.Equal(have, before) {
			t.Errorf("after AcquireMany with key %d held the keys that are stored are %v; want %v", i, have, before)
		}

		// All, in order: while it waits for one, it has those before and none after.
		result := make(chan error, 1)
		var set *locco.LockSet
		go func() {
			var err error
			set, err = l.AcquireMany(t.Context(), wanted, time.Minute, locco.RetryForever(), locco.RetryDelay(20*time.Millisecond))
			result <- err
		}()
		j.more(t, 2, key, locco.EventContended)
		want := make([]bool, len(keys))
		for k := range want {
			want[k] = k <= i
		}
		if have := stored(); !slices.Equal(have, want) {
			t.Errorf("while AcquireMany waits for key %d the keys that are stored are %v; want %v", i, have, want)
		}
		release(t, held)
		if err := <-result; err != nil {
			t.Fatalf("AcquireMany over several slots: %v", err)
		}
		w.granted(t, set.Get(key))
		if err := set.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend of a set over several slots: %v", err)
		}
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release of a set over several slots: %v", err)
		}
	}
}

// spec 8.5: extensions of keys all over the Cluster go together, with a verdict for
// each.
func testClusterExtendMany(t *testing.T, d driver, c *cluster) {
	b := d.open(t, c.settings())
	many, ok := b.(locco.ManyExtender)
	if !ok {
		t.Fatalf("%T is no ManyExtender", b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	unique := rand.Text()
	owners := map[int]bool{}
	var leases []locco.Lease
	var cmds rueidis.Commands
	for i := range 300 {
		key := fmt.Sprintf("%s:%d", unique, i)
		if i%3 == 0 { // a hundred in one slot
			key = fmt.Sprintf("{%s}:%d", unique, i)
		}
		if i < 30 {
			owners[c.Owner(t, key)] = true
		}
		l := locco.Lease{Key: key, Token: rand.Text(), TTL: time.Minute}
		leases = append(leases, l)
		switch i % 10 {
		case 7: // gone
		case 8: // another's
			cmds = append(cmds, c.admin.B().Set().Key(key).Value("another").PxMilliseconds(20000).Build())
		case 9: // no lock at all
			cmds = append(cmds, c.admin.B().Rpush().Key(key).Element("x").Build())
		default:
			cmds = append(cmds, c.admin.B().Set().Key(key).Value(l.Token).PxMilliseconds(20000).Build())
		}
	}
	if len(owners) != len(c.Nodes) {
		t.Fatalf("the keys are on the nodes %v; want all", owners)
	}
	for _, r := range c.admin.DoMulti(ctx, cmds...) {
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
	verdicts := many.ExtendMany(ctx, leases)
	if len(verdicts) != len(leases) {
		t.Fatalf("ExtendMany(%d keys) = %d verdicts", len(leases), len(verdicts))
	}
	for i, v := range verdicts {
		ours, wrong := i%10 < 7, i%10 == 9
		if v.OK != ours || (v.Err != nil) != wrong {
			t.Errorf("ExtendMany: key %d = %+v; want OK %v, error %v", i, v, ours, wrong)
		}
		left, err := c.admin.Do(ctx, c.admin.B().Pttl().Key(leases[i].Key).Build()).AsInt64()
		if err != nil || (left > 30000) != ours {
			t.Errorf("key %d has %d ms left after ExtendMany, %v; want it extended: %v", i, left, err, ours)
		}
	}
}

// spec 4.2, 8.2: a slot that moves takes its locks along. The holder goes on, nobody
// else gets the key, and its fences go on growing.
func testClusterSlotMoves(t *testing.T, d driver, c *cluster) {
	j, w, key := &journal{}, &witness{}, rand.Text()
	holder := newLocker(t, d.open(t, c.settings()), locco.WithFencing(), j.option())
	rival := newLocker(t, d.open(t, c.settings()), locco.WithFencing())
	waiter := newLocker(t, d.open(t, c.settings()), locco.WithFencing())
	lock := take(t, holder, key, 10*time.Second, locco.AutoExtend(time.Minute), locco.ExtendEvery(200*time.Millisecond))
	w.granted(t, lock)
	waiting := await(t, waiter, key, time.Minute)

	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		looks := 0
		defer func() { stopped <- looks }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			switch l, err := rival.TryAcquire(t.Context(), key, time.Minute); {
			case err == nil:
				w.granted(t, l)
			case errors.Is(err, locco.ErrHeld):
				looks++
			}
		}
	}()
	for range len(c.Nodes) { // around the Cluster
		j.more(t, 1, key, locco.EventExtended)
		c.moves.Lock()
		c.MoveSlot(t, key, (c.Owner(t, key)+1)%len(c.Nodes))
		c.moves.Unlock()
		j.more(t, 2, key, locco.EventExtended)
		wantHeld(t, lock)
	}
	close(stop)
	if looks := <-stopped; looks == 0 {
		t.Error("the rival has never seen that the key is held")
	}
	select {
	case r := <-waiting:
		t.Errorf("the waiter has %v, %v while the lock is held", r.lock, r.err)
	default:
	}
	release(t, lock)
	next := got(t, waiting)
	w.granted(t, next)
	if stored := get(t, c.admin, key); stored != next.Token() {
		t.Errorf("%q has the token %q; want that of its new holder", key, stored)
	}
	release(t, next)
}

// spec 3.7, 8.2: in the middle of a move, what is about the key alone goes on. A
// grant with a fence needs the counter too; as long as only one of them has moved
// it fails with an error that passes, which never says that somebody has the key.
func testClusterHalfMoved(t *testing.T, d driver, c *cluster, counter bool) {
	j, w, key := &journal{}, &witness{}, rand.Text()
	holder := newLocker(t, d.open(t, c.settings()), locco.WithFencing())
	rival := newLocker(t, d.open(t, c.settings()), locco.WithFencing(), j.option())
	plain := newLocker(t, d.open(t, c.settings()))
	lock := take(t, holder, key, time.Minute)
	w.granted(t, lock)

	m := c.move(t, key)
	moved, left := key, protocol.FenceKey(key)
	if counter {
		moved, left = left, moved
	}
	m.key(t, moved)

	for range 2 {
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend in the middle of a move: %v", err)
		}
		wantHeld(t, lock)
		if _, err := plain.TryAcquire(t.Context(), key, time.Minute); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire without a fence in the middle of a move = %v; want ErrHeld", err)
		}
	}
	// With the key still at its place and the counter gone from there, or the other
	// way round.
	_, err := rival.TryAcquire(t.Context(), key, time.Minute)
	wantFailure(t, "fenced TryAcquire in the middle of a move", err)
	_, err = rival.Acquire(t.Context(), key, time.Minute, locco.Retries(2), locco.RetryDelay(10*time.Millisecond))
	wantFailure(t, "fenced Acquire in the middle of a move", err)
	if err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
		t.Errorf("fenced Acquire in the middle of a move = %v; want the server's TRYAGAIN", err)
	}
	failed := j.of(key, locco.EventAcquireFailed)
	if n := len(failed); n != 2 || failed[1].Attempts < 3 {
		t.Errorf("fenced Acquire in the middle of a move: %+v; want a second failure after 3 attempts at least", failed)
	}

	waiting := await(t, rival, key, time.Minute)
	j.more(t, 2, key, locco.EventContended)
	wantHeld(t, lock)
	m.key(t, left)
	j.more(t, 1, key, locco.EventContended)
	m.end(t)
	wantHeld(t, lock)
	release(t, lock)
	next := got(t, waiting)
	w.granted(t, next)

	// The same, and the key is freed on the way.
	m = c.move(t, key)
	m.key(t, moved)
	waiting = await(t, holder, key, time.Minute)
	release(t, next)
	if stored := get(t, c.admin, key); stored != "" {
		t.Errorf("%q has the token %q after its release in the middle of a move", key, stored)
	}
	if !counter {
		m.key(t, left)
	}
	m.end(t)
	last := got(t, waiting)
	w.granted(t, last)
	release(t, last)
}

// spec 5.3, 2.2: with a node that is silent or gone, the keys on the others go on. A
// look at a key on it is late or fails, and its holder knows by its own clock that
// the lease has ended.
func testClusterNodeFails(t *testing.T, c *cluster) {
	const node = 2 // not the first one, whom the test asks about the Cluster
	type prepared struct {
		locker       *locco.Locker
		short, plain *locco.Locker // that do not wait long for an answer
		j            *journal
		w            *witness
		doomed, safe *locco.Lock
		free, brace  string // on the node
	}
	all := map[string]*prepared{}
	for _, d := range drivers() {
		p := &prepared{
			j: &journal{}, w: &witness{},
			free: c.keyOn(t, node, "", ""), brace: c.keyOn(t, node, "}", ""),
		}
		timeout := locco.WithCallTimeout(500 * time.Millisecond)
		p.locker = newLocker(t, d.open(t, c.settings()), locco.WithFencing(), p.j.option())
		p.short = newLocker(t, d.open(t, c.settings()), locco.WithFencing(), timeout, p.j.option())
		p.plain = newLocker(t, d.open(t, c.settings()), timeout)
		auto := []locco.CallOption{locco.AutoExtend(time.Minute), locco.ExtendEvery(200 * time.Millisecond)}
		p.doomed = take(t, p.short, c.keyOn(t, node, "", ""), 3*time.Second, auto...)
		p.safe = take(t, p.locker, c.keyOn(t, 0, "", ""), 10*time.Second, auto...)
		p.w.granted(t, p.doomed)
		all[d.name] = p
	}
	others := func(t *testing.T, p *prepared) {
		t.Helper()
		for _, other := range []int{0, 1} {
			lock := take(t, p.locker, c.keyOn(t, other, "", ""), time.Minute, locco.Retries(0))
			wantHeld(t, lock)
			release(t, lock)
		}
		p.j.more(t, 2, p.safe.Key(), locco.EventExtended)
		wantHeld(t, p.safe)
	}

	for _, p := range all {
		p.j.more(t, 1, p.doomed.Key(), locco.EventExtended)
	}
	c.Nodes[node].Pause(t)
	atOnce(t, "Silent", map[string]func(t *testing.T, d driver){"Node": func(t *testing.T, d driver) {
		p := all[d.name]
		// Of what is refused before any I/O the silence shows nothing.
		if _, err := p.short.TryAcquire(t.Context(), p.brace, time.Minute); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("fenced TryAcquire(%q) = %v; want ErrInvalid without a word to the server", p.brace, err)
		}
		_, err := p.plain.TryAcquire(t.Context(), p.brace, time.Minute)
		wantFailure(t, "TryAcquire of a key with a brace on a silent node", err)
		_, err = p.short.TryAcquire(t.Context(), p.free, time.Minute)
		wantFailure(t, "TryAcquire of a key on a silent node", err)
		others(t, p)
		select {
		case <-p.doomed.Lost():
		case <-time.After(patience):
			t.Errorf("the holder behind a silent node has heard of no loss")
		}
		if reason := p.doomed.Reason(); reason != locco.ReasonExtendFailed && reason != locco.ReasonLateExtend {
			t.Errorf("the holder behind a silent node has lost its lock by %q", reason)
		}
		if len(p.j.of(p.doomed.Key(), locco.EventExtendFailed)) == 0 {
			t.Error("the holder behind a silent node has heard of no failed extension")
		}
	}})
	c.Nodes[node].Unpause(t)
	c.WaitOK(t)
	atOnce(t, "Back", map[string]func(t *testing.T, d driver){"Node": func(t *testing.T, d driver) {
		p := all[d.name]
		next := take(t, p.locker, p.doomed.Key(), time.Minute)
		p.w.granted(t, next)
		p.doomed = next
	}})

	c.Nodes[node].Stop(t)
	atOnce(t, "Gone", map[string]func(t *testing.T, d driver){"Node": func(t *testing.T, d driver) {
		p := all[d.name]
		_, err := p.locker.TryAcquire(t.Context(), p.free, time.Minute)
		wantFailure(t, "TryAcquire of a key on a node that is gone", err)
		_, err = p.locker.Acquire(t.Context(), p.free, time.Minute, locco.Retries(2), locco.RetryDelay(10*time.Millisecond))
		wantFailure(t, "Acquire of a key on a node that is gone", err)
		wantFailure(t, "Check of a key on a node that is gone", p.doomed.Check(t.Context()))
		if state := p.doomed.State(); state != locco.StateHeld {
			t.Errorf("a lock whose check had no answer is %s; want held until its lease ends", state)
		}
		others(t, p)
	}})
	c.Nodes[node].Start(t)
	c.WaitOK(t)
	// It came back without data, so that the lease is gone, and the holder finds out.
	atOnce(t, "Empty", map[string]func(t *testing.T, d driver){"Node": func(t *testing.T, d driver) {
		p := all[d.name]
		soon(t, "Check of a lock that the server forgot says so", func() bool {
			return errors.Is(p.doomed.Check(t.Context()), locco.ErrLost)
		})
		next := take(t, p.locker, p.doomed.Key(), time.Minute)
		p.w.granted(t, next)
		release(t, next)
		release(t, p.safe)
	}})
}
