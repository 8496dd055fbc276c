package integration_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// long is a lease that does not end while a test waits for its turn.
const long = time.Hour

func throughSentinels(s *integration.Sentinel) settings {
	return settings{addrs: s.Addrs(), sentinel: s.Name}
}

// onReplica waits until the replica has the lock.
func onReplica(t *testing.T, replica rueidis.Client, lock *locco.Lock) {
	t.Helper()
	soon(t, "the replica has "+lock.Key(), func() bool { return get(t, replica, lock.Key()) == lock.Token() })
}

// TestRedisFailover has a primary that goes silent, a replica that takes over, and
// the old primary that comes back as a replica.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartSentinel(t, r)
		replica := s.Replica.Client(t)
		atOnce(t, "Before", map[string]func(t *testing.T, d driver){
			"Reads": func(t *testing.T, d driver) { testSentinelReads(t, d, s, replica) },
		})
		all := map[string]*failover{}
		for _, d := range drivers() {
			all[d.name] = prepareFailover(t, d, s)
		}
		for _, f := range all {
			onReplica(t, replica, f.plain)
			onReplica(t, replica, f.direct)
			if token := get(t, replica, f.durable.Key()); token != f.durable.Token() {
				t.Errorf("the replica has the token %q for %q; want that of the lock (spec 8.2)", token, f.durable.Key())
			}
		}
		s.Primary.Pause(t)
		s.WaitFailover(t, s.Primary)
		atOnce(t, "After", map[string]func(t *testing.T, d driver){
			"Holder":      func(t *testing.T, d driver) { testFailoverHolder(t, all[d.name], replica) },
			"Replication": func(t *testing.T, d driver) { testFailoverReplication(t, d, s, all[d.name], replica) },
		})
		s.Primary.Unpause(t)
		soon(t, "the old primary is a replica", func() bool {
			m, err := s.Primary.Do(t.Context(), "INFO", "replication") // its connections break
			if err != nil {
				return false
			}
			info, err := m.ToString()
			return err == nil && strings.Contains(info, "role:slave")
		})
		atOnce(t, "Back", map[string]func(t *testing.T, d driver){
			"ReadOnly": func(t *testing.T, d driver) { testFailoverReadOnly(t, all[d.name]) },
		})
	})
}

// spec 8.2: a check asks the primary, also through a client that may send what only
// reads to a replica.
func testSentinelReads(t *testing.T, d driver, s *integration.Sentinel, replica rueidis.Client) {
	to := throughSentinels(s)
	to.reads = true
	l := newLocker(t, d.open(t, to), locco.WithFencing())
	plain := newLocker(t, d.open(t, to))
	lock := take(t, l, rand.Text(), time.Minute)
	onReplica(t, replica, lock)
	// From now on the replica says something else.
	if err := do(t, replica, "CONFIG", "SET", "replica-read-only", "no").Error(); err != nil {
		t.Fatalf("CONFIG SET: %v", err)
	}
	if n, err := do(t, replica, "DEL", lock.Key()).AsInt64(); err != nil || n != 1 {
		t.Fatalf("DEL on the replica = %d, %v", n, err)
	}
	wantHeld(t, lock)
	for _, rival := range []*locco.Locker{l, plain} {
		if _, err := rival.TryAcquire(t.Context(), lock.Key(), time.Minute); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire of a key that the replica does not know = %v; want ErrHeld", err)
		}
	}
	set(t, replica, lock.Key(), lock.Token())
	release(t, lock)
	other := take(t, plain, lock.Key(), time.Minute)
	set(t, replica, lock.Key(), lock.Token()) // as if the replica lagged
	b := d.open(t, to)
	if ours, err := b.Holds(t.Context(), lock.Key(), lock.Token()); ours || err != nil {
		t.Errorf("Holds of what only the replica still has = %v, %v; want that it is not held", ours, err)
	}
	release(t, other)
}

// failover is what a driver has on its way over a failover.
type failover struct {
	j       *journal
	w       *witness
	plain   *locco.Lock // with auto-extension
	waiting <-chan taken

	durable *locco.Lock // its grant is on the replica

	only   *locco.Locker // knows the old primary alone
	onlyJ  *journal
	direct *locco.Lock // of it
}

func prepareFailover(t *testing.T, d driver, s *integration.Sentinel) *failover {
	t.Helper()
	f := &failover{j: &journal{}, w: &witness{}, onlyJ: &journal{}}
	to := throughSentinels(s)
	quick := locco.WithCallTimeout(2 * time.Second)
	holder := newLocker(t, d.open(t, to), locco.WithFencing(), quick, f.j.option())
	f.plain = take(t, holder, rand.Text(), long, locco.AutoExtend(2*long), locco.ExtendEvery(300*time.Millisecond))
	f.w.granted(t, f.plain)
	f.waiting = await(t, newLocker(t, d.open(t, to), locco.WithFencing(), quick), f.plain.Key(), time.Minute)

	to.replicas, to.timeout = 1, 200*time.Millisecond
	f.durable = takeReplicated(t, newLocker(t, d.open(t, to), locco.WithFencing()), rand.Text(), long)

	f.only = newLocker(t, d.open(t, at(s.Primary)), locco.WithFencing(), f.onlyJ.option())
	f.direct = take(t, f.only, rand.Text(), long)
	return f
}

// spec 4.4, 6.4: a holder whose key was replicated sees extensions that fail and then
// goes on at the new primary. Nobody else gets the key before its release, and the
// fences grow.
func testFailoverHolder(t *testing.T, f *failover, now rueidis.Client) {
	key := f.plain.Key()
	soon(t, "an extension has failed", func() bool { return len(f.j.of(key, locco.EventExtendFailed)) > 0 })
	before := len(f.j.of(key, locco.EventExtended))
	soon(t, "an extension reached the new primary", func() bool { return len(f.j.of(key, locco.EventExtended)) >= before+2 })
	wantHeld(t, f.plain)
	if token := get(t, now, key); token != f.plain.Token() {
		t.Errorf("the new primary has the token %q for %q; want that of the lock", token, key)
	}
	for _, e := range f.j.of(key, locco.EventExtendFailed) {
		if errors.Is(e.Err, locco.ErrLost) || errors.Is(e.Err, locco.ErrHeld) {
			t.Errorf("an extension failed with %v; want late or the driver's error", e.Err)
		}
	}
	select {
	case r := <-f.waiting:
		t.Errorf("the waiter has %v, %v while the lock is held", r.lock, r.err)
	default:
	}
	release(t, f.plain)
	next := got(t, f.waiting)
	f.w.granted(t, next)
	release(t, next)
}

// spec 8.2: a grant that has come back with its acknowledgement survives the
// failover: nobody else gets the key while it is held.
func testFailoverReplication(t *testing.T, d driver, s *integration.Sentinel, f *failover, now rueidis.Client) {
	w, key := &witness{}, f.durable.Key()
	w.granted(t, f.durable)
	if token := get(t, now, key); token != f.durable.Token() {
		t.Errorf("the new primary has the token %q for %q; want that of the lock", token, key)
	}
	j := &journal{}
	rival := newLocker(t, d.open(t, throughSentinels(s)), locco.WithFencing(), j.option())
	soon(t, "a rival sees that the key is held", func() bool {
		lock, err := rival.TryAcquire(t.Context(), key, time.Minute)
		if err == nil {
			w.granted(t, lock)
			t.Fatal("a rival has got the key after the failover")
		}
		return errors.Is(err, locco.ErrHeld)
	})
	waiting := await(t, rival, key, time.Minute)
	j.more(t, 2, key, locco.EventContended)
	// The holder's client finds the new primary.
	soon(t, "Check finds the lock held", func() bool {
		err := f.durable.Check(t.Context())
		if errors.Is(err, locco.ErrLost) {
			t.Fatalf("Check = %v after the failover", err)
		}
		return err == nil
	})
	if state := f.durable.State(); state != locco.StateHeld {
		t.Errorf("the lock is %s after the failover; want held", state)
	}
	// There is no replica now to acknowledge anything.
	if err := f.durable.Extend(t.Context(), time.Minute); err == nil {
		t.Error("Extend without a replica = nil")
	} else {
		wantReplication(t, "Extend without a replica", err, 1, 0)
	}
	release(t, f.durable)
	next := got(t, waiting)
	w.granted(t, next)
	release(t, next)
}

// spec 3.7, 8.2: a client that still talks to the old primary is told READONLY. That
// is tried again within the budget, and never looks like another holder.
func testFailoverReadOnly(t *testing.T, f *failover) {
	readOnly := func(what string, err error) {
		t.Helper()
		wantFailure(t, what, err)
		if err != nil && !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s = %v; want the server's READONLY", what, err)
		}
	}
	// Sentinel cuts connections meanwhile, which a call finds out.
	soon(t, "the old primary answers, what is not a check", func() bool {
		return strings.Contains(fmt.Sprint(f.direct.Check(t.Context())), "READONLY")
	})
	key := rand.Text()
	soon(t, "TryAcquire finds a replica", func() bool {
		_, err := f.only.TryAcquire(t.Context(), key, time.Minute)
		wantFailure(t, "TryAcquire", err)
		return strings.Contains(fmt.Sprint(err), "READONLY")
	})
	_, err := f.only.Acquire(t.Context(), key, time.Minute, locco.Retries(3), locco.RetryDelay(10*time.Millisecond))
	readOnly("Acquire", err)
	if e := f.onlyJ.of(key, locco.EventAcquireFailed); len(e) < 2 || e[0].Attempts != 1 || e[len(e)-1].Attempts < 4 {
		t.Errorf("TryAcquire and Acquire(3 retries) of a replica: events %+v; want failures after 1 and after 4 attempts", e)
	}
	_, err = f.only.AcquireMany(t.Context(), []string{key, key + "b"}, time.Minute, locco.Retries(1), locco.RetryDelay(10*time.Millisecond))
	readOnly("AcquireMany", err)
	readOnly("Extend", f.direct.Extend(t.Context(), time.Minute))
	if state := f.direct.State(); state != locco.StateHeld {
		t.Errorf("a lock whose extension was refused by a replica is %s; want held until its lease ends", state)
	}
	readOnly("Release", f.direct.Release(t.Context()))
}

// TestRedisFailoverLosesGrant holds what is documented about replication that is
// asynchronous: a grant that the new primary has not seen is lost, and a second
// holder may get the key while the first one believes in its lease. The fences tell
// the two apart, though their counter is lost too (spec 6.4), and the first holder
// finds out when it next asks. A grant that had come back with the acknowledgement of
// that replica is there, however many were under way.
func TestRedisFailoverLosesGrant(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartSentinel(t, r)
		type prepared struct {
			j            *journal
			locker       *locco.Locker
			lock, renews *locco.Lock
			durable      *durable
		}
		all := map[string]*prepared{}
		for _, d := range drivers() {
			p := &prepared{j: &journal{}}
			p.locker = newLocker(t, d.open(t, throughSentinels(s)), locco.WithFencing(), locco.WithCallTimeout(2*time.Second), p.j.option())
			release(t, take(t, p.locker, rand.Text(), time.Minute)) // connected
			to := throughSentinels(s)
			to.replicas, to.timeout = 1, 200*time.Millisecond
			p.durable = startDurable(t, d.open(t, to))
			all[d.name] = p
		}
		// With its link cut, a replica that stands still gets nothing: what is written
		// into a connection, it would read later. The Sentinels should not miss it.
		s.Replica.Pause(t)
		text := func(args ...string) {
			if _, err := s.Primary.Do(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
		text("CLIENT", "KILL", "TYPE", "replica")
		for _, p := range all {
			p.lock = take(t, p.locker, rand.Text(), long)
			p.renews = take(t, p.locker, rand.Text(), long, locco.AutoExtend(2*long), locco.ExtendEvery(300*time.Millisecond))
		}
		for _, p := range all {
			p.durable.goOn(t)
		}
		s.Primary.Stop(t)
		for _, p := range all {
			p.durable.stop()
		}
		s.Replica.Unpause(t)
		now := s.WaitFailover(t, s.Primary).Client(t)
		atOnce(t, "After", map[string]func(t *testing.T, d driver){"Grant": func(t *testing.T, d driver) {
			p := all[d.name]
			p.durable.wantAll(t, now)
			for _, lock := range []*locco.Lock{p.lock, p.renews} {
				for _, key := range []string{lock.Key(), protocol.FenceKey(lock.Key())} {
					if value := get(t, now, key); value != "" {
						t.Fatalf("the new primary has %q for %q; want that nothing was replicated", value, key)
					}
				}
			}
			rival := newLocker(t, d.open(t, throughSentinels(s)), locco.WithFencing())
			second := take(t, rival, p.lock.Key(), time.Minute)
			if state := p.lock.State(); state != locco.StateHeld {
				t.Errorf("the first holder's lock is %s before it asks; want held", state)
			}
			if second.Fence() <= p.lock.Fence() {
				t.Errorf("the second holder has fence %d after %d (spec 6.4)", second.Fence(), p.lock.Fence())
			}
			var err error
			soon(t, "the first holder's check has an answer", func() bool {
				err = p.lock.Check(t.Context())
				return err == nil || errors.Is(err, locco.ErrLost)
			})
			if err == nil || p.lock.Reason() != locco.ReasonObserved {
				t.Errorf("the first holder's check = %v, reason %q; want lost, observed", err, p.lock.Reason())
			}
			if err := p.lock.Release(t.Context()); !errors.Is(err, locco.ErrLost) {
				t.Errorf("the first holder's Release = %v; want ErrLost", err)
			}
			wantHeld(t, second)

			third := take(t, rival, p.renews.Key(), time.Minute)
			if third.Fence() <= p.renews.Fence() {
				t.Errorf("the second holder has fence %d after %d (spec 6.4)", third.Fence(), p.renews.Fence())
			}
			select {
			case <-p.renews.Lost():
			case <-time.After(patience):
				t.Fatal("the first holder's extensions have not found the lock lost")
			}
			if reason := p.renews.Reason(); reason != locco.ReasonExtend {
				t.Errorf("the first holder's lock is lost by %q; want %q", reason, locco.ReasonExtend)
			}
			wantHeld(t, third)
		}})
	})
}

// durable is many goroutines that acquire one key after another through one backend
// that waits for a replica.
type durable struct {
	stop func()

	mu    sync.Mutex // guards what follows
	locks []*locco.Lock
	calls int // that have ended
}

func startDurable(t *testing.T, b locco.Backend) *durable {
	t.Helper()
	l := newLocker(t, b, locco.WithFencing())
	d := &durable{}
	ended := make(chan struct{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				lock, err := l.TryAcquire(t.Context(), rand.Text(), long)
				d.mu.Lock()
				d.calls++
				if err == nil {
					d.locks = append(d.locks, lock)
				}
				d.mu.Unlock()
			}
		})
	}
	d.stop = sync.OnceFunc(func() {
		close(ended)
		all.Wait()
	})
	t.Cleanup(d.stop)
	soon(t, "some grants have come back with their acknowledgement", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.locks) >= 100
	})
	return d
}

// goOn waits until every goroutine has begun a call and ended it.
func (d *durable) goOn(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	before := d.calls
	d.mu.Unlock()
	soon(t, "further calls", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.calls >= before+2*16
	})
}

// wantAll checks that what has come back as granted is on the new primary.
func (d *durable) wantAll(t *testing.T, now rueidis.Client) {
	t.Helper()
	var cmds rueidis.Commands
	for _, lock := range d.locks {
		cmds = append(cmds, now.B().Get().Key(lock.Key()).Build())
	}
	missing := 0
	for i, r := range now.DoMulti(t.Context(), cmds...) {
		if token, err := r.ToString(); token != d.locks[i].Token() {
			if missing++; missing < 5 {
				t.Errorf("the new primary has the token %q, %v for %q, which was granted WithReplication (spec 8.2)", token, err, d.locks[i].Key())
			}
		}
	}
	if missing > 0 {
		t.Errorf("of %d grants that a replica had acknowledged, %d have not survived the failover", len(d.locks), missing)
	}
}
