package integration_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// replication tells how many replicas a write wanted and how many have acknowledged
// it, if err is about that.
func replication(err error) (wanted, acknowledged int, ok bool) {
	var few *redis.ReplicationError
	if !errors.As(err, &few) {
		return 0, 0, false
	}
	return few.Wanted, few.Acknowledged, true
}

// wantReplication checks that a call failed for want of acknowledgements, and says
// nothing about a holder.
func wantReplication(t *testing.T, what string, err error, wanted, acknowledged int) {
	t.Helper()
	if w, a, ok := replication(err); !ok || w != wanted || a != acknowledged || errors.Is(err, locco.ErrHeld) {
		t.Errorf("%s = %v; want a *ReplicationError with %d of %d acknowledgements (spec 8.2)", what, err, acknowledged, wanted)
	}
}

// replicated is a primary and a replica that the tests of a server share.
type replicated struct {
	*integration.Replicated
	primary, replica rueidis.Client // for the test
}

// durable are the settings of a client that waits for replicas.
func (s *replicated) durable(replicas int, timeout time.Duration) settings {
	return settings{addrs: []string{s.Primary.Addr}, replicas: replicas, timeout: timeout}
}

// wantReplica checks that the replica has the locks at this moment, for longer than
// it had before.
func (s *replicated) wantReplica(t *testing.T, what string, longer time.Duration, locks ...*locco.Lock) {
	t.Helper()
	var cmds rueidis.Commands
	for _, lock := range locks {
		cmds = append(cmds, s.replica.B().Get().Key(lock.Key()).Build(), s.replica.B().Pttl().Key(lock.Key()).Build())
	}
	answers := s.replica.DoMulti(t.Context(), cmds...)
	for i, lock := range locks {
		token, err := answers[2*i].ToString()
		if token != lock.Token() {
			t.Errorf("after %s the replica has the token %q, %v for %q; want that of the lock (spec 8.2)", what, token, err, lock.Key())
			continue
		}
		left, err := answers[2*i+1].AsInt64()
		if err != nil || time.Duration(left)*time.Millisecond <= longer {
			t.Errorf("after %s the replica has %q for %d ms, %v; want more than %s (spec 8.2)", what, lock.Key(), left, err, longer)
		}
	}
}

func TestRedisReplication(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		pair := integration.StartReplicated(t, r, "--enable-debug-command", "yes")
		s := &replicated{pair, pair.Primary.Client(t), pair.Replica.Client(t)}
		slow := s.delay(t)
		atOnce(t, "Works", map[string]func(t *testing.T, d driver){
			"One":            func(t *testing.T, d driver) { testReplicationOne(t, d, s) },
			"Many":           func(t *testing.T, d driver) { testReplicationMany(t, d, s) },
			"Handover":       func(t *testing.T, d driver) { testReplicationHandover(t, d, s) },
			"ConcurrentSafe": func(t *testing.T, d driver) { testReplicationConcurrentSafe(t, d, s) },
		})
		slow()
		atOnce(t, "TooFew", map[string]func(t *testing.T, d driver){
			"Grants":     func(t *testing.T, d driver) { testReplicationFewForGrants(t, d, s) },
			"Extensions": func(t *testing.T, d driver) { testReplicationFewForExtensions(t, d, s) },
		})
		testReplicationPaused(t, s)
	})
}

// delay makes the replica stand still most of the time, until the function that is
// returned is called: who does not wait for it does not find there what was written.
func (s *replicated) delay(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	replica := s.Replica.Client(t)
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := replica.Do(context.Background(), replica.B().Arbitrary("DEBUG", "SLEEP", "0.05").Build()).Error(); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("DEBUG SLEEP on the replica: %v", err)
		}
	})
}

// generous is longer than the replica stands still.
const generous = 2 * time.Second

// spec 8.2: when an acquire or an extension returns, the replica has it.
func testReplicationOne(t *testing.T, d driver, s *replicated) {
	for _, fenced := range []bool{false, true} {
		var opts []locco.Option
		if fenced {
			opts = append(opts, locco.WithFencing())
		}
		l := newLocker(t, d.open(t, s.durable(1, generous)), opts...)
		for range 5 {
			lock := take(t, l, rand.Text(), 20*time.Second)
			s.wantReplica(t, "Acquire", 0, lock)
			if err := lock.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("Extend: %v", err)
			}
			s.wantReplica(t, "Extend", 30*time.Second, lock)
			release(t, lock)
		}
	}
}

// spec 8.2: when a set is taken or extended, the replica has all of it.
func testReplicationMany(t *testing.T, d driver, s *replicated) {
	b := d.open(t, s.durable(1, generous))
	l := newLocker(t, b, locco.WithFencing())
	prefix := rand.Text()
	var keys []string
	for i := range 40 { // more than one script extends
		keys = append(keys, prefix+strconv.Itoa(i))
	}
	set, err := l.AcquireMany(t.Context(), keys, 20*time.Second)
	if err != nil {
		t.Fatalf("AcquireMany: %v", err)
	}
	defer set.Release(t.Context())
	s.wantReplica(t, "AcquireMany", 0, set.Locks()...)
	if err := set.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("Extend of a set: %v", err)
	}
	s.wantReplica(t, "Extend of a set", 30*time.Second, set.Locks()...)

	many, ok := b.(locco.ManyExtender)
	if !ok {
		t.Fatalf("%T is no ManyExtender", b)
	}
	var leases []locco.Lease
	for _, lock := range set.Locks() {
		leases = append(leases, locco.Lease{Key: lock.Key(), Token: lock.Token(), TTL: 2 * time.Minute})
	}
	leases = append(leases, locco.Lease{Key: prefix, Token: "nobody", TTL: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, v := range many.ExtendMany(ctx, leases) {
		if ours := i < len(keys); v.OK != ours || v.Err != nil {
			t.Errorf("ExtendMany: key %d = %+v; want OK %v", i, v, ours)
		}
	}
	s.wantReplica(t, "ExtendMany", 90*time.Second, set.Locks()...)
}

// spec 8.2, 3.6: what a waiter gets by a hand-over, the replica has too.
func testReplicationHandover(t *testing.T, d driver, s *replicated) {
	j, w, key := &journal{}, &witness{}, rand.Text()
	l := newLocker(t, d.open(t, s.durable(1, generous)), locco.WithFencing(), j.option())
	lock := take(t, l, key, time.Minute)
	w.granted(t, lock)
	// The first of them may come too late to be in the queue, the last may not: a
	// grant takes as long as the replica stands still.
	const waiters = 5
	results := make(chan taken, waiters)
	for range waiters {
		go func() {
			lock, err := l.Acquire(t.Context(), key, time.Minute, locco.RetryForever())
			results <- taken{lock, err}
		}()
	}
	for range waiters {
		release(t, lock)
		lock = got(t, results)
		s.wantReplica(t, "a hand-over", 0, lock)
		w.granted(t, lock)
	}
	release(t, lock)
	handed := 0
	for _, e := range j.of(key, locco.EventReleased) {
		if e.Outcome == locco.OutcomeHandedOver {
			handed++
		}
	}
	if handed == 0 {
		t.Error("nothing was handed over")
	}
}

// spec 8.2: each write has a WAIT of its own behind it on its connection, however
// many share the client: what was granted is on the replica.
func testReplicationConcurrentSafe(t *testing.T, d driver, s *replicated) {
	b := d.open(t, s.durable(1, generous))
	l := newLocker(t, b, locco.WithFencing(), locco.WithCallTimeout(patience))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	quiet := s.others(t, b)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 3 {
				lock, err := l.Acquire(ctx, rand.Text(), time.Minute)
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				s.wantReplica(t, "Acquire", 0, lock)
				if err := lock.Release(ctx); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	quiet()
}

// others writes through the client of b what nobody waits for, until the function
// that is returned is called.
func (s *replicated) others(t *testing.T, b locco.Backend) (quiet func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	ended := make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				key := rand.Text()
				if err := s.primary.Do(ctx, s.primary.B().Set().Key(key).Value("x").PxMilliseconds(60000).Build()).Error(); err != nil {
					t.Errorf("SET: %v", err)
				}
				if ours, err := b.Release(ctx, key, "x"); err != nil || !ours {
					t.Errorf("Release through the same client = %v, %v", ours, err)
				}
			}
		})
	}
	return func() {
		close(ended)
		all.Wait()
		cancel()
	}
}

// plenty is how long a call waits for two acknowledgements where there is one replica:
// always, and long enough for that one.
const plenty = time.Second

// spec 8.2: too few acknowledgements of a grant are an error with both numbers, and
// the key is given back.
func testReplicationFewForGrants(t *testing.T, d driver, s *replicated) {
	j, w, key := &journal{}, &witness{}, rand.Text()
	two := newLocker(t, d.open(t, s.durable(2, plenty)), locco.WithFencing(), j.option())
	one := newLocker(t, d.open(t, s.durable(1, generous)), locco.WithFencing())
	_, err := two.Acquire(t.Context(), key, time.Minute)
	wantReplication(t, "Acquire that wants 2", err, 2, 1)
	s.wantGivenBack(t, j, key, 1)
	_, err = two.TryAcquire(t.Context(), key, time.Minute)
	wantReplication(t, "TryAcquire that wants 2", err, 2, 1)
	s.wantGivenBack(t, j, key, 2)
	_, err = two.AcquireMany(t.Context(), []string{key, key + "b"}, time.Minute)
	wantReplication(t, "AcquireMany that wants 2", err, 2, 1)
	s.wantGivenBack(t, j, key, 3)
	s.wantGivenBack(t, j, key+"b", 1)

	// Of what is refused there is nothing to acknowledge.
	lock := take(t, one, key, time.Minute)
	w.granted(t, lock)
	if _, err := two.TryAcquire(t.Context(), key, time.Minute); !errors.Is(err, locco.ErrHeld) {
		t.Errorf("TryAcquire that wants 2 of a key that is held = %v; want ErrHeld", err)
	}
	wantHeld(t, lock)
	release(t, lock)
}

// spec 8.2: too few acknowledgements of an extension or a hand-over are an error with
// both numbers. What was not ours is not ours all the same.
func testReplicationFewForExtensions(t *testing.T, d driver, s *replicated) {
	b, key, token := d.open(t, s.durable(2, plenty)), rand.Text(), rand.Text()
	if err := do(t, s.primary, "SET", key, token, "PX", "60000").Error(); err != nil {
		t.Fatalf("SET: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease := locco.Lease{Key: key, Token: token, TTL: time.Minute}
	foreign := locco.Lease{Key: key, Token: "nobody", TTL: time.Minute}
	_, err := b.Extend(ctx, lease)
	wantReplication(t, "Extend that wants 2", err, 2, 1)
	if ours, err := b.Extend(ctx, foreign); ours || err != nil {
		t.Errorf("Extend of what is not ours = %v, %v; want that it is not ours", ours, err)
	}

	many, ok := b.(locco.ManyExtender)
	if !ok {
		t.Fatalf("%T is no ManyExtender", b)
	}
	verdicts := many.ExtendMany(ctx, []locco.Lease{lease, foreign})
	wantReplication(t, "ExtendMany that wants 2", verdicts[0].Err, 2, 1)
	if v := verdicts[1]; v.OK || v.Err != nil {
		t.Errorf("ExtendMany of what is not ours = %+v; want that it is not ours", v)
	}

	transferrer, ok := b.(locco.Transferrer)
	if !ok {
		t.Fatalf("%T is no Transferrer", b)
	}
	to := locco.Lease{Key: key, Token: rand.Text(), TTL: time.Minute, Fenced: true}
	_, err = transferrer.Transfer(ctx, token, to)
	wantReplication(t, "Transfer that wants 2", err, 2, 1)
	to.Token = rand.Text()
	if g, err := transferrer.Transfer(ctx, token, to); g.OK || err != nil {
		t.Errorf("Transfer of what is not ours = %+v, %v; want that it is not ours", g, err)
	}
}

// wantGivenBack checks that a key is free again after its grant failed.
func (s *replicated) wantGivenBack(t *testing.T, j *journal, key string, times int) {
	t.Helper()
	soon(t, fmt.Sprintf("%q is given back", key), func() bool { return len(j.of(key, locco.EventGivenBack)) >= times })
	if token := get(t, s.primary, key); token != "" {
		t.Errorf("%q has the token %q after it was given back", key, token)
	}
}

// spec 8.2, 4.4: with the replica silent no grant comes about. A lock stays held
// until its lease ends; its extensions fail, and go on when the replica is back.
func testReplicationPaused(t *testing.T, s *replicated) {
	const timeout = 200 * time.Millisecond
	type prepared struct {
		b      locco.Backend
		locker *locco.Locker
		j      *journal
		set    *locco.LockSet
		lock   *locco.Lock // with auto-extension
		brief  *locco.Lock // with a lease that ends
		asked  time.Time   // before its request
	}
	const brief = 3 * time.Second
	all := map[string]*prepared{}
	for _, d := range drivers() {
		p := &prepared{b: d.open(t, s.durable(1, timeout)), j: &journal{}}
		p.locker = newLocker(t, p.b, locco.WithFencing(), locco.WithCallTimeout(patience), p.j.option())
		all[d.name] = p
	}
	s.WaitLinked(t)
	for _, p := range all {
		soon(t, "a set that the replica has acknowledged", func() bool {
			var err error
			p.set, err = p.locker.AcquireMany(t.Context(), []string{rand.Text(), rand.Text(), rand.Text()}, long)
			return err == nil
		})
	}
	// The locks come one after another, so that the brief one is not over too soon.
	for _, p := range all {
		p.lock = takeReplicated(t, p.locker, rand.Text(), long, locco.AutoExtend(2*long), locco.ExtendEvery(time.Second))
	}
	for _, p := range all {
		p.asked = time.Now()
		p.brief = takeReplicated(t, p.locker, rand.Text(), brief)
	}
	s.Replica.Pause(t)
	atOnce(t, "Paused", map[string]func(t *testing.T, d driver){"Replica": func(t *testing.T, d driver) {
		p := all[d.name]
		err := p.brief.Extend(t.Context(), time.Minute)
		// On a machine that slept for seconds the lease may have ended.
		if time.Since(p.asked) < brief/2 {
			wantReplication(t, "Extend with the replica paused", err, 1, 0)
			if left := p.brief.Remaining(); p.brief.State() != locco.StateHeld || left > brief {
				t.Errorf("after an extension without acknowledgement the lock is %s for %s; want held for its old lease", p.brief.State(), left)
			}
			if e := p.j.of(p.brief.Key(), locco.EventExtendFailed); len(e) != 1 {
				t.Errorf("after an extension without acknowledgement there are the events %+v; want one that says so", e)
			} else {
				wantReplication(t, "the event of an extension", e[0].Err, 1, 0)
			}
		}
		key := rand.Text()
		_, err = p.locker.Acquire(t.Context(), key, time.Minute)
		wantReplication(t, "Acquire with the replica paused", err, 1, 0)
		s.wantGivenBack(t, p.j, key, 1)
		_, err = p.locker.TryAcquire(t.Context(), key, time.Minute)
		wantReplication(t, "TryAcquire with the replica paused", err, 1, 0)
		s.wantGivenBack(t, p.j, key, 2)

		select {
		case <-p.brief.Lost():
			if held := time.Since(p.asked); held < brief*98/100 {
				t.Errorf("a lock whose extension was not acknowledged is lost after %s; want its lease of %s", held, brief)
			}
			if p.brief.Reason() == locco.ReasonExtend {
				t.Errorf("a lock whose extension was not acknowledged is lost by %q", p.brief.Reason())
			}
		case <-time.After(patience):
			t.Errorf("a lock whose extension was not acknowledged outlives its lease")
		}

		err = p.set.Extend(t.Context(), long)
		wantReplication(t, "Extend of a set with the replica paused", err, 1, 0)
		for _, lock := range p.set.Locks() {
			wantHeld(t, lock)
		}
		_, err = p.locker.AcquireMany(t.Context(), []string{rand.Text(), rand.Text(), rand.Text()}, time.Minute)
		wantReplication(t, "AcquireMany with the replica paused", err, 1, 0)

		// Each write has a WAIT of its own on its connection, however many share the
		// client: on another connection it would find nothing to wait for.
		quiet := s.others(t, p.b)
		var together sync.WaitGroup
		for range 64 {
			together.Go(func() {
				_, err := p.locker.TryAcquire(t.Context(), rand.Text(), time.Minute)
				wantReplication(t, "one of many TryAcquire with the replica paused", err, 1, 0)
			})
		}
		together.Wait()
		quiet()
		p.j.more(t, 2, p.lock.Key(), locco.EventExtendFailed)
		for _, e := range p.j.of(p.lock.Key(), locco.EventExtendFailed) {
			wantReplication(t, "the event of an automatic extension", e.Err, 1, 0)
		}
		wantHeld(t, p.lock)
	}})
	s.Replica.Unpause(t)
	atOnce(t, "Back", map[string]func(t *testing.T, d driver){"Replica": func(t *testing.T, d driver) {
		p := all[d.name]
		p.j.more(t, 2, p.lock.Key(), locco.EventExtended)
		wantHeld(t, p.lock)
		s.wantReplica(t, "an automatic extension", 30*time.Second, p.lock)
		release(t, p.lock)
		if err := p.set.Release(t.Context()); err != nil {
			t.Errorf("Release of a set: %v", err)
		}
	}})
}

// takeReplicated acquires a key although the replica of a busy machine may take
// longer than the test's timeout to answer.
func takeReplicated(t *testing.T, l *locco.Locker, key string, ttl time.Duration, opts ...locco.CallOption) (lock *locco.Lock) {
	t.Helper()
	soon(t, "a grant that the replica has acknowledged", func() bool {
		var err error
		lock, err = l.Acquire(t.Context(), key, ttl, opts...)
		if _, _, few := replication(err); err != nil && !few {
			t.Fatalf("Acquire(%q): %v", key, err)
		}
		return err == nil
	})
	return lock
}
