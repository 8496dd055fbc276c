package integration_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// The tests of this file do something to the server or the connection, and say what
// the holder and a waiter see of it.

// spec 3.7, 4.4, 5.3: a server that is stopped loses no lease. Meanwhile calls fail, the
// holder believes in its lease as long as it runs, and a waiter goes on.
func TestPostgresStopped(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		n := integration.StartPostgres(t, p)
		w := &witness{}
		holder := newLocker(t, postgres.New(integration.Pool(t, n.URL)), locco.WithFencing(), locco.WithCallTimeout(2*time.Second))
		other := newLocker(t, postgres.New(integration.Pool(t, n.URL)), locco.WithFencing(), locco.WithCallTimeout(2*time.Second))
		long := take(t, holder, "long", time.Hour)
		w.granted(t, long)
		short := take(t, holder, "short", 3*time.Second, locco.AutoExtend(time.Hour))
		ws := &witness{}
		ws.granted(t, short)
		waiters := map[string]<-chan taken{"long": await(t, other, "long", time.Hour), "short": await(t, other, "short", time.Hour)}

		n.Stop(t)
		_, err := other.TryAcquire(t.Context(), "free", time.Minute)
		wantFailure(t, "TryAcquire of a stopped server", err)
		if long.State() != locco.StateHeld || long.Extend(t.Context(), time.Hour) == nil {
			t.Errorf("the lock is %s, and an extension works; want held, and an error", long.State())
		}
		select {
		case <-short.Lost():
		case <-time.After(patience):
			t.Fatal("spec 5.3: the holder did not learn that its lease has ended while the server was down")
		}
		n.Start(t)
		next := got(t, waiters["short"])
		ws.granted(t, next)
		soon(t, "the holder has its lock", func() bool { return long.Check(t.Context()) == nil })
		releaseAnyway(t, long)
		w.granted(t, got(t, waiters["long"]))
		if err := short.Release(t.Context()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Release of the lost lock = %v; want ErrLost", err)
		}
		wantHeld(t, next)
	})
}

// spec 5.3, 4.4: a pause of the server that is shorter than the lease is nothing to a
// holder. During a longer one it knows by its own clock that its lease has ended.
func TestPostgresPaused(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		n := integration.StartPostgres(t, p)
		w := &witness{}
		callTimeout := locco.WithCallTimeout(700 * time.Millisecond)
		holder := newLocker(t, postgres.New(integration.Pool(t, n.URL)), locco.WithFencing(), callTimeout)
		waiter := newLocker(t, postgres.New(integration.Pool(t, n.URL)), locco.WithFencing(), callTimeout)
		long := take(t, holder, "long", 30*time.Second, locco.AutoExtend(time.Minute), locco.ExtendEvery(200*time.Millisecond))
		n.Pause(t)
		time.Sleep(time.Second)
		n.Unpause(t)
		soon(t, "the holder has its lock", func() bool { return long.Check(t.Context()) == nil })

		short := take(t, holder, "short", 2*time.Second, locco.AutoExtend(time.Minute))
		w.granted(t, short)
		next := await(t, waiter, "short", time.Minute)
		n.Pause(t)
		select {
		case <-short.Lost():
		case <-time.After(patience):
			t.Fatal("spec 5.3: the holder did not learn that its lease has ended while the server was silent")
		}
		if _, err := holder.TryAcquire(t.Context(), "other", time.Second); !errors.Is(err, locco.ErrLate) || errors.Is(err, locco.ErrHeld) {
			t.Errorf("spec 2.2: TryAcquire at a silent server = %v; want ErrLate", err)
		}
		n.Unpause(t)
		lock := got(t, next)
		w.granted(t, lock)
		_ = short.Release(t.Context()) // of a lost lock: it must not free the other's
		soon(t, "calls work again", func() bool { return lock.Check(t.Context()) == nil })
		soon(t, "the holder has its lock", func() bool { return long.Check(t.Context()) == nil })
	})
}

// spec 5.3, 1.6, 1.7: behind a network that goes silent a holder knows that it lost the
// lock before a waiter elsewhere has it, and what arrives late changes nothing.
func TestPostgresSilentNetwork(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, n *integration.PostgresNode, url string) {
		proxy := integration.StartProxy(t, n.Addr)
		w := &witness{}
		behind := newLocker(t, postgres.New(integration.Pool(t, through(t, url, proxy.Addr))), locco.WithFencing(), locco.WithCallTimeout(500*time.Millisecond))
		direct := newLocker(t, postgres.New(integration.Pool(t, url)), locco.WithFencing())
		lock := take(t, behind, "k", 2*time.Second, locco.AutoExtend(time.Minute))
		w.granted(t, lock)
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
			return err == nil && lock.Release(t.Context()) == nil
		})
		wantHeld(t, next)
		soon(t, "the key of the late attempt is free", func() bool {
			lock, err := direct.TryAcquire(t.Context(), "free", time.Minute)
			return err == nil && lock.Release(t.Context()) == nil
		})
	})
}

// spec 2.6, 5.4: a reply that is lost after the statement was applied. Our own grant never
// comes back as held, and a release counts.
func TestPostgresLostReply(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		t.Run("Fenced="+strconv.FormatBool(fenced), func(t *testing.T) {
			t.Parallel()
			eachPostgresDatabase(t, func(t *testing.T, n *integration.PostgresNode, url string) {
				postgresLostReply(t, n, url, fenced)
			})
		})
	}
}

func postgresLostReply(t *testing.T, n *integration.PostgresNode, url string, fenced bool) {
	t.Helper()
	var opts []locco.Option
	if fenced {
		opts = append(opts, locco.WithFencing())
	}
	proxy := integration.StartProxy(t, n.Addr)
	l := newLocker(t, postgres.New(integration.Pool(t, through(t, url, proxy.Addr))), opts...)
	direct := newLocker(t, postgres.New(integration.Pool(t, url)), opts...)
	wait := func(what string, dropped <-chan struct{}) {
		t.Helper()
		select {
		case <-dropped:
		case <-time.After(patience):
			t.Fatalf("the reply to %s was not dropped", what)
		}
	}
	w := &witness{}
	for i := range 4 {
		// A connection that is new prepares its statements first, without the key.
		key := "the key " + strconv.Itoa(i)
		dropped := proxy.DropReply(key)
		lock := take(t, l, key, time.Minute, locco.RetryDelay(10*time.Millisecond))
		wait("Acquire", dropped)
		wantHeld(t, lock)
		if lock.Attempts() < 2 {
			t.Errorf("Attempts = %d; want a second look", lock.Attempts())
		}

		dropped = proxy.DropReply(key)
		if err := lock.Extend(t.Context(), time.Minute); err == nil {
			t.Error("Extend whose reply is lost = nil; want the driver's error")
		}
		wait("Extend", dropped)
		wantHeld(t, lock)

		dropped = proxy.DropReply(key)
		if err := lock.Check(t.Context()); err == nil || errors.Is(err, locco.ErrLost) {
			t.Errorf("Check whose reply is lost = %v; want the driver's error", err)
		}
		wait("Check", dropped)

		waiter := await(t, l, key, time.Minute)
		time.Sleep(50 * time.Millisecond) // else it is a release without a waiter, which comes next
		dropped = proxy.DropReply(key)
		releaseAnyway(t, lock) // a hand-over, and what comes of it
		wait("a hand-over", dropped)
		lock = got(t, waiter)
		wantHeld(t, lock)

		dropped = proxy.DropReply(key)
		if err := lock.Release(t.Context()); err == nil {
			t.Error("Release whose reply is lost = nil; want the driver's error")
		}
		wait("Release", dropped)
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("spec 5.4: the second Release = %v; want nil", err)
		}
		next, err := direct.TryAcquire(t.Context(), key, time.Minute)
		if err != nil {
			t.Fatalf("TryAcquire of the key that was freed = %v", err)
		}
		w.granted(t, next)
		release(t, next)

		dropped = proxy.DropReply(key)
		set, err := l.AcquireMany(t.Context(), []string{key, key + "b"}, time.Minute, locco.RetryDelay(20*time.Millisecond))
		if err != nil {
			t.Fatalf("spec 2.6: AcquireMany whose reply is lost = %v; want nil", err)
		}
		wait("AcquireMany", dropped)
		if err := set.Err(); err != nil {
			t.Errorf("Err of the set = %v", err)
		}
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release of the set = %v", err)
		}
		// TryAcquire does not repeat: it tells a failure from "held", and gives back.
		dropped = proxy.DropReply(key)
		_, err = l.TryAcquire(t.Context(), key, time.Minute)
		wantFailure(t, "TryAcquire whose reply is lost", err)
		wait("TryAcquire", dropped)
		soon(t, "the key is given back", func() bool {
			lock, err := direct.TryAcquire(t.Context(), key, time.Minute)
			return err == nil && lock.Release(t.Context()) == nil
		})
	}
}

// spec 1.1, 5.3, 6.1: nobody holds a key twice, whatever happens to the connections.
func TestPostgresExclusionConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, n *integration.PostgresNode, url string) {
		proxy := integration.StartProxy(t, n.Addr)
		admin := connectTo(t, url)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const enough = 30
		w := &witness{}
		var grants atomic.Int32
		var wg sync.WaitGroup
		for i := range 3 {
			at := through(t, url, proxy.Addr)
			if i == 0 {
				at = url
			}
			l := newLocker(t, postgres.New(integration.Pool(t, at)), locco.WithFencing(), locco.WithCallTimeout(time.Second))
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lock, err := l.Acquire(ctx, "k", 600*time.Millisecond, locco.RetryDelay(20*time.Millisecond), locco.RetryForever(), locco.AutoExtend(2*time.Second))
						if err != nil {
							continue
						}
						w.granted(t, lock)
						grants.Add(1)
						time.Sleep(2 * time.Millisecond)
						_ = lock.Release(ctx)
					}
				})
			}
		}
		for i := 0; grants.Load() < enough && ctx.Err() == nil; i++ {
			switch i % 3 {
			case 0:
				proxy.Cut()
			case 1:
				execute(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			case 2:
				proxy.Silence()
				time.Sleep(400 * time.Millisecond)
				proxy.Resume()
			}
			time.Sleep(500 * time.Millisecond) // for some to get through
		}
		proxy.Resume()
		cancel()
		wg.Wait()
		if n := grants.Load(); n < enough {
			t.Errorf("%d grants in a minute; want more", n)
		}
	})
}

// spec 3.7, 8.3, 8.5: another transaction that holds the row, or the whole table, makes a
// call end within its time, with an error that passes by itself and is not ErrHeld.
func TestPostgresForeignTransaction(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		const timeout = 800 * time.Millisecond
		pool := integration.Pool(t, url, two)
		b := postgres.New(pool)
		l := newLocker(t, b, locco.WithFencing(), locco.WithCallTimeout(timeout))
		admin := integration.Pool(t, url)
		cycle(t, b)
		kept, row := take(t, l, "kept", time.Hour), take(t, l, "row", time.Hour)
		ends := func(what string, closes bool, do func() error) error {
			t.Helper()
			before := pool.Stat().NewConnsCount()
			err := do()
			if err == nil || errors.Is(err, locco.ErrHeld) || errors.Is(err, locco.ErrInvalid) || errors.Is(err, locco.ErrLost) {
				t.Errorf("%s = %v; want an error that passes by itself", what, err)
			}
			if closed := pool.Stat().NewConnsCount() > before; closed && !closes {
				t.Errorf("%s: connections were closed for a row that is locked", what)
			}
			return err
		}
		locked := func(what string, do func() error) {
			t.Helper()
			if err := ends(what, false, do); code(err) != "55P03" || !b.Retryable(err) {
				t.Errorf("%s = %v; want 55P03, which is Retryable", what, err)
			}
		}
		try := func(key string) func() error {
			return func() error { _, err := l.TryAcquire(t.Context(), key, time.Minute); return err }
		}
		insert := begin(t, url)
		execute(t, insert, `INSERT INTO locco_locks VALUES ('inserted', 'x', now() + interval '1 hour')`)
		locked("TryAcquire of a key that another transaction inserts", try("inserted"))
		_ = insert.Rollback(t.Context())
		release(t, take(t, l, "inserted", time.Minute))

		hold := begin(t, url)
		execute(t, hold, `SELECT FROM locco_locks WHERE key = 'row' FOR UPDATE`)
		locked("Extend", func() error { return row.Extend(t.Context(), time.Hour) })
		verdicts := b.ExtendMany(call(t), []locco.Lease{
			{Key: "row", Token: row.Token(), TTL: time.Hour},
			{Key: "kept", Token: kept.Token(), TTL: 2 * time.Hour},
			{Key: "absent", Token: "x", TTL: time.Hour},
		})
		if v := verdicts[0]; v.OK || v.Err == nil || !b.Retryable(v.Err) {
			t.Errorf("ExtendMany, the locked row: %+v; want an error that is Retryable", v)
		}
		if v := verdicts[1]; !v.OK || v.Err != nil {
			t.Errorf("spec 8.5: ExtendMany, another row: %+v; want OK", v)
		}
		if v := verdicts[2]; v.OK || v.Err != nil {
			t.Errorf("ExtendMany, an absent key: %+v; want a refusal", v)
		}
		wantHeld(t, row)
		// A key that is held is refused by what is committed: it waits for nobody.
		if _, err := l.TryAcquire(t.Context(), "row", time.Minute); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire of a held key whose row is locked = %v; want ErrHeld", err)
		}
		locked("Release", func() error { return row.Release(t.Context()) })
		_ = hold.Rollback(t.Context())
		if err := row.Release(t.Context()); err != nil {
			t.Errorf("Release once the row is free = %v", err)
		}

		expired := begin(t, url)
		execute(t, admin, `INSERT INTO locco_locks VALUES ('old', 'x', now() - interval '1 hour')`)
		execute(t, expired, `SELECT FROM locco_locks WHERE key = 'old' FOR UPDATE`)
		locked("TryAcquire of an ended lease whose row is locked", try("old"))
		_, _, err := b.AcquireMany(call(t), []locco.Lease{{Key: "new", Token: "y", TTL: time.Minute}, {Key: "old", Token: "y", TTL: time.Minute}})
		if code(err) != "55P03" || !b.Retryable(err) {
			t.Errorf("AcquireMany = %v; want 55P03, which is Retryable", err)
		}
		if scanned[bool](t, admin, `SELECT EXISTS (SELECT FROM locco_locks WHERE key = 'new')`) {
			t.Error("AcquireMany that failed has taken a key")
		}
		waiter := await(t, l, "old", time.Minute)
		time.Sleep(timeout) // the waiter meets the locked row
		_ = expired.Rollback(t.Context())
		release(t, got(t, waiter))

		whole := begin(t, url)
		execute(t, whole, `LOCK TABLE locco_locks`)
		start := time.Now()
		_ = ends("TryAcquire of a table that is locked", true, try("any"))
		if took := time.Since(start); took > patience {
			t.Errorf("it took %v; want about the call timeout, %v", took, timeout)
		}
		_ = ends("Extend at a table that is locked", true, func() error { return kept.Extend(t.Context(), time.Hour) })
		_ = whole.Rollback(t.Context())
		soon(t, "calls work again", func() bool { return kept.Extend(t.Context(), time.Hour) == nil })
		release(t, kept)
	})
}

// spec 2.6, 8: what a release does while watches are set up and connections are few: no
// call runs into its time limit.
func TestPostgresReleasesAmongWatchesConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url, func(c *pgxpool.Config) { c.MaxConns = 4 })
		b := postgres.New(pool)
		l := newLocker(t, b, locco.WithCallTimeout(patience))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for ctx.Err() == nil {
					lock, err := l.Acquire(t.Context(), "k"+strconv.Itoa(i), time.Minute)
					if err != nil {
						t.Errorf("Acquire = %v", err)
						return
					}
					if err := lock.Release(t.Context()); err != nil {
						t.Errorf("Release = %v", err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, stop, err := b.Watch(call(t), "k"+strconv.Itoa(i%16))
				if err != nil {
					t.Errorf("Watch = %v", err)
					return
				}
				if i%3 == 0 {
					t.Cleanup(stop)
				} else {
					stop()
				}
			}
		})
		wg.Wait()
	})
}
