package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
)

// The tests of this file do something to the server or the connection, and say what
// the holder and a waiter see of it.

// spec 8.2: a server that forgets its scripts gets them again; nobody notices.
func TestRedisScriptFlush(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		l := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		flush := func() { n.FlushScripts(t) }
		step := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s after SCRIPT FLUSH = %v; want nil", what, err)
			}
		}
		flush()
		lock := take(t, l, "k", time.Minute)
		flush()
		step("Extend", lock.Extend(t.Context(), time.Minute))
		flush()
		step("Check", lock.Check(t.Context()))
		waiter := await(t, l, "k", time.Minute)
		time.Sleep(100 * time.Millisecond) // else the release finds nobody, which is tested too
		flush()
		step("Release with a local waiter", lock.Release(t.Context()))
		next := got(t, waiter)
		flush()
		step("Release", next.Release(t.Context()))
		flush()
		set, err := l.AcquireMany(t.Context(), []string{"a", "b", "c"}, time.Minute)
		if err != nil {
			t.Fatalf("AcquireMany after SCRIPT FLUSH = %v; want nil", err)
		}
		flush()
		step("LockSet.Extend", set.Extend(t.Context(), time.Minute))
		flush()
		step("LockSet.Release", set.Release(t.Context()))
		if next.Fence() <= lock.Fence() {
			t.Errorf("spec 6.4: fence %d after %d", next.Fence(), lock.Fence())
		}
	})
}

// spec 4.4, 8.6: connections that are killed cost neither the holder its lock nor the
// waiter its wake-up, which come back on one connection.
func TestRedisKilledConnections(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		w := &witness{}
		holder := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		waiter := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		// Many extensions meet a killed connection, and the lease outlasts a busy machine.
		lock := take(t, holder, "k", 20*time.Second, locco.AutoExtend(5*time.Minute), locco.ExtendEvery(200*time.Millisecond))
		w.granted(t, lock)
		take(t, holder, "kk", time.Minute)
		same, other := make(chan taken, 2), make(chan taken, 1)
		awaitWoken(t, waiter, "k", same)
		awaitWoken(t, waiter, "k", same)
		awaitWoken(t, waiter, "kk", other)
		subscribed := func() bool { return subscribers(t, n) == 1 }
		soon(t, "one connection is subscribed", subscribed)
		before := connections(t, n)
		const kills = 5
		for range kills {
			n.KillClients(t)
			soon(t, "one connection is subscribed again", subscribed)
			soon(t, "the holder has its lock", func() bool { return lock.Check(t.Context()) == nil })
		}
		// Each kill costs a few connections for commands and one for messages; the admin
		// of the test has one a command.
		if more := connections(t, n) - before; more > 60*kills {
			t.Errorf("%d connections were opened after %d kills; want few: somebody spins", more, kills)
		}
		// A wake-up whose look meets a connection that was killed is as good as lost.
		for _, l := range []*locco.Locker{holder, waiter} {
			soon(t, "commands work again", func() bool {
				lock, err := l.TryAcquire(t.Context(), "other", 300*time.Millisecond)
				return err == nil && lock.Release(t.Context()) == nil
			})
		}
		releaseAnyway(t, lock)
		next := got(t, same)
		w.granted(t, next)
		releaseAnyway(t, next)
		last := got(t, same)
		w.granted(t, last)
		_ = last.Release(t.Context())
		for _, held := range holder.Held() {
			releaseAnyway(t, held)
		}
		_ = got(t, other).Release(t.Context())
		soon(t, "no connection is subscribed any more", func() bool { return subscribers(t, n) == 0 })
	})
}

// spec 5.3, 6.4: a server that comes back empty has lost the leases. Each holder finds
// out at its next word, waiters are granted the keys, and fences grow.
func TestRedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		l := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		other := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		words := map[string]struct {
			say    func(ctx context.Context, lock *locco.Lock) error
			reason locco.Reason
		}{
			"extended": {func(ctx context.Context, lock *locco.Lock) error { return lock.Extend(ctx, time.Minute) }, locco.ReasonExtend},
			"checked":  {func(ctx context.Context, lock *locco.Lock) error { return lock.Check(ctx) }, locco.ReasonObserved},
			"released": {func(ctx context.Context, lock *locco.Lock) error { return lock.Release(ctx) }, locco.ReasonRelease},
		}
		locks := map[string]*locco.Lock{}
		waiters := map[string]<-chan taken{}
		for key := range words {
			locks[key] = take(t, l, key, time.Minute)
			waiters[key] = await(t, other, key, time.Minute)
		}
		n.Restart(t)
		for key, word := range words {
			next := got(t, waiters[key])
			if next.Fence() <= locks[key].Fence() {
				t.Errorf("spec 6.4: %s has fence %d after %d", key, next.Fence(), locks[key].Fence())
			}
			var err error
			soon(t, "an answer about "+key, func() bool { // the first one may meet a broken connection
				err = word.say(t.Context(), locks[key])
				return errors.Is(err, locco.ErrLost)
			})
			var lost *locco.LostError
			if !errors.As(err, &lost) || lost.Reason != word.reason {
				t.Errorf("%s: %v; want the reason %s", key, err, word.reason)
			}
			if err := next.Check(t.Context()); err != nil {
				t.Errorf("the next holder of %s: Check = %v; want nil", key, err)
			}
		}
	})
}

// spec 5.3, 4.4: a pause of the server that is shorter than the lease is nothing to a
// holder. During a longer one it knows by its own clock that its lease has ended, while
// the server is silent, and the key goes to a waiter afterwards.
func TestRedisPaused(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		w := &witness{}
		callTimeout := locco.WithCallTimeout(700 * time.Millisecond)
		holder := newLocker(t, d.open(t, at(n)), locco.WithFencing(), callTimeout)
		waiter := newLocker(t, d.open(t, at(n)), locco.WithFencing(), callTimeout)

		long := take(t, holder, "long", 30*time.Second, locco.AutoExtend(time.Minute), locco.ExtendEvery(200*time.Millisecond))
		n.Pause(t)
		time.Sleep(time.Second)
		n.Unpause(t)
		wantHeld(t, long)

		short := take(t, holder, "short", 2*time.Second, locco.AutoExtend(time.Minute))
		w.granted(t, short)
		next := await(t, waiter, "short", 2*time.Second)
		n.Pause(t)
		select {
		case <-short.Lost():
		case <-time.After(patience):
			t.Fatal("spec 5.3: the holder did not learn that its lease has ended while the server was silent")
		}
		var lost *locco.LostError
		if err := short.Err(); !errors.As(err, &lost) || lost.Reason != locco.ReasonLateExtend && lost.Reason != locco.ReasonExtendFailed {
			t.Errorf("spec 4.5: %v; want late-extend or extend-failed", short.Err())
		}
		if _, err := waiter.TryAcquire(t.Context(), "short", time.Second); !errors.Is(err, locco.ErrLate) && !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire at a silent server = %v; want ErrLate, or ErrHeld as others wait already", err)
		}
		if _, err := holder.TryAcquire(t.Context(), "other", time.Second); !errors.Is(err, locco.ErrLate) || errors.Is(err, locco.ErrHeld) {
			t.Errorf("spec 2.2: TryAcquire at a silent server = %v; want ErrLate", err)
		}
		n.Unpause(t)
		lock := got(t, next)
		w.granted(t, lock)
		_ = short.Release(t.Context()) // of a lost lock: it must not free the other's
		wantHeld(t, lock)
		wantHeld(t, long)
	})
}

// spec 5.3, 1.6, 1.7: behind a network that goes silent a holder knows that it lost the
// lock before a waiter elsewhere has it, and what arrives late changes nothing.
func TestRedisSilentNetwork(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		proxy := integration.StartProxy(t, n.Addr)
		w := &witness{}
		behind := newLocker(t, d.open(t, settings{addrs: []string{proxy.Addr}}), locco.WithFencing(), locco.WithCallTimeout(500*time.Millisecond))
		direct := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		lock := take(t, behind, "k", 2*time.Second, locco.AutoExtend(time.Minute))
		w.granted(t, lock)
		wantHeld(t, lock)
		waiter := await(t, direct, "k", time.Minute)
		proxy.Silence()
		next := got(t, waiter)
		w.granted(t, next) // fails if lock still reads held
		if _, err := behind.TryAcquire(t.Context(), "free", 3*time.Second); !errors.Is(err, locco.ErrLate) || errors.Is(err, locco.ErrHeld) {
			t.Errorf("spec 2.2: TryAcquire behind a silent network = %v; want ErrLate", err)
		}
		if err := lock.Release(t.Context()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Release of the lost lock = %v; want ErrLost", err)
		}
		proxy.Resume() // requests that were sent arrive now
		soon(t, "the network is back", func() bool {
			lock, err := behind.TryAcquire(t.Context(), "another", time.Minute)
			if err == nil {
				_ = lock.Release(t.Context())
			}
			return err == nil
		})
		wantHeld(t, next)
		// The attempt that was late may be stored by now, and what was to give it back is
		// lost. Its lease ends.
		soon(t, "the key of the late attempt is free", func() bool {
			lock, err := direct.TryAcquire(t.Context(), "free", time.Minute)
			if err == nil {
				_ = lock.Release(t.Context())
			}
			return err == nil
		})
	})
}

// spec 2.6, 5.4: a reply that is lost after the command was applied. Our own grant never
// comes back as held, and a release counts.
func TestRedisLostReply(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		t.Run("Fenced="+strconv.FormatBool(fenced), func(t *testing.T) {
			t.Parallel()
			eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
				lostReply(t, d, integration.SharedRedis(t, r), fenced)
			})
		})
	}
}

func lostReply(t *testing.T, d driver, n *integration.Node, fenced bool) {
	t.Helper()
	var opts []locco.Option
	if fenced {
		opts = append(opts, locco.WithFencing())
	}
	proxy := integration.StartProxy(t, n.Addr)
	prefix := t.Name() + ":"
	l := newLocker(t, d.open(t, settings{addrs: []string{proxy.Addr}}), append(opts, locco.WithPrefix(prefix))...)
	direct := newLocker(t, d.open(t, at(n)), append(opts, locco.WithPrefix(prefix))...)
	wait := func(what string, dropped <-chan struct{}) {
		t.Helper()
		select {
		case <-dropped:
		case <-time.After(patience):
			t.Fatalf("the reply to %s was not dropped", what)
		}
	}
	for i := range 5 {
		key := "k" + strconv.Itoa(i)
		dropped := proxy.DropReply(prefix + key)
		lock := take(t, l, key, time.Minute)
		wait("Acquire", dropped)
		wantHeld(t, lock)

		dropped = proxy.DropReply(prefix + key)
		if err := lock.Extend(t.Context(), time.Minute); err == nil {
			t.Errorf("Extend whose reply is lost = nil; want the driver's error")
		}
		wait("Extend", dropped)
		wantHeld(t, lock)

		waiter := await(t, l, key, time.Minute)
		soon(t, "somebody waits", func() bool { return len(l.Held()) == 1 })
		time.Sleep(50 * time.Millisecond) // for the waiter to be in the queue
		dropped = proxy.DropReply(prefix + key)
		// A hand-over. What is lost may also be the answer that the server does not know
		// the script yet, and then it is this that passes the key on.
		releaseAnyway(t, lock)
		wait("a hand-over", dropped)
		lock = got(t, waiter)
		wantHeld(t, lock)

		dropped = proxy.DropReply(prefix + key)
		if err := lock.Release(t.Context()); err == nil {
			t.Errorf("Release whose reply is lost = nil; want the driver's error")
		}
		wait("Release", dropped)
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("spec 5.4: the second Release = %v; want nil", err)
		}
		next, err := direct.TryAcquire(t.Context(), key, time.Minute)
		if err != nil {
			t.Fatalf("TryAcquire of the key that was freed = %v", err)
		}
		_ = next.Release(t.Context())

		dropped = proxy.DropReply(prefix + key)
		set, err := l.AcquireMany(t.Context(), []string{key, key + "b"}, time.Minute, locco.RetryDelay(20*time.Millisecond))
		if err != nil {
			t.Fatalf("spec 2.6: AcquireMany whose reply is lost = %v; want nil", err)
		}
		wait("AcquireMany", dropped)
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release of the set = %v", err)
		}
	}
}

// spec 2.6: a caller whose context ends while the answer is on its way gets its error,
// and the key is soon free again.
func TestRedisCanceledCall(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		proxy := integration.StartProxy(t, n.Addr)
		prefix := t.Name() + ":"
		l := newLocker(t, d.open(t, settings{addrs: []string{proxy.Addr}}), locco.WithPrefix(prefix), locco.WithFencing())
		direct := newLocker(t, d.open(t, at(n)), locco.WithPrefix(prefix), locco.WithFencing())
		warm := take(t, l, "warm", time.Minute)
		_ = warm.Release(t.Context())

		proxy.Silence()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, "k", time.Minute, locco.RetryForever())
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v; want %v", err, context.DeadlineExceeded)
		}
		proxy.Resume()
		soon(t, "the key is free", func() bool {
			lock, err := direct.TryAcquire(t.Context(), "k", time.Minute)
			if err == nil {
				_ = lock.Release(t.Context())
			}
			return err == nil
		})
	})
}

// spec 1.1, 5.3, 6.1: nobody holds a key twice, whatever happens to the connections.
func TestRedisExclusionConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		proxy := integration.StartProxy(t, n.Addr)
		w := &witness{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var grants atomic.Int32
		var wg sync.WaitGroup
		for _, s := range []settings{at(n), {addrs: []string{proxy.Addr}}} {
			l := newLocker(t, d.open(t, s), locco.WithFencing())
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lock, err := l.Acquire(ctx, "hot", 500*time.Millisecond, locco.RetryForever(), locco.RetryDelay(20*time.Millisecond))
						if err != nil {
							continue // what was broken is not what is tested
						}
						w.granted(t, lock)
						grants.Add(1)
						time.Sleep(2 * time.Millisecond)
						_ = lock.Release(context.Background())
					}
				})
			}
		}
		for i := 0; grants.Load() < 50 && ctx.Err() == nil; i++ {
			time.Sleep(100 * time.Millisecond)
			if i%5 == 4 {
				n.KillClients(t)
			} else {
				proxy.Cut()
			}
		}
		cancel()
		wg.Wait()
		if n := grants.Load(); n < 50 {
			t.Errorf("%d grants in a minute; want more", n)
		}
	})
}

// awaitWoken waits for a key in such a way that only a wake-up can end the wait in time.
func awaitWoken(t *testing.T, l *locco.Locker, key string, outcome chan<- taken) {
	t.Helper()
	go func() {
		lock, err := l.Acquire(t.Context(), key, time.Minute, onlyWoken...)
		outcome <- taken{lock, err}
	}()
}

// releaseAnyway releases a lock though the first request may meet a broken connection.
func releaseAnyway(t *testing.T, lock *locco.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); err != nil {
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release of %q = %v, the second time too", lock.Key(), err)
		}
	}
}

// subscribers returns how many connections are subscribed to something.
func subscribers(t *testing.T, n *integration.Node) int {
	t.Helper()
	m, err := n.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub")
	if err != nil {
		return -1 // the test's own connection may be the victim of the test
	}
	text, err := m.ToString()
	if err != nil {
		t.Fatalf("CLIENT LIST: %v", err)
	}
	return strings.Count(text, "id=")
}

// connections returns how many connections the server has had.
func connections(t *testing.T, n *integration.Node) int {
	t.Helper()
	text, err := do(t, n.Client(t), "INFO", "stats").ToString()
	if err != nil {
		t.Fatalf("INFO: %v", err)
	}
	var total int
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "total_connections_received:"); ok {
			if _, err := fmt.Sscan(value, &total); err != nil {
				t.Fatalf("INFO has %q: %v", line, err)
			}
		}
	}
	return total
}
