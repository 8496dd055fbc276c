package integration_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// awaitWakeUp waits for a key, with a retry delay that is longer than the test: what
// grants it in time is a wake-up.
func awaitWakeUp(t *testing.T, l *locco.Locker, key string) <-chan taken {
	t.Helper()
	c := make(chan taken, 1)
	go func() {
		lock, err := l.Acquire(t.Context(), key, time.Minute, locco.RetryForever(), locco.RetryDelay(10*time.Minute))
		c <- taken{lock, err}
	}()
	return c
}

// keyNumber is the number of a key, as the package's documentation has it.
func keyNumber(key string) int64 {
	sum := sha256.Sum256([]byte("locco:" + key))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// spec 8.6: a release notifies only if somebody waits for the key, on the channel and
// with the advisory lock that are documented, which others may use.
func TestPostgresNotifiesWhoWaits(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		l := newLocker(t, postgres.New(pool), locco.WithFencing())
		ear := connectTo(t, url)
		const key = "some key"
		number := keyNumber(key)
		channel := fmt.Sprintf("locco_%x", uint64(number))
		execute(t, ear, "LISTEN "+channel)
		// heard are the notifications so far: one of ours comes last.
		heard := func() (n int) {
			t.Helper()
			execute(t, pool, "NOTIFY "+channel+", 'end'")
			for {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				m, err := ear.WaitForNotification(ctx)
				cancel()
				if err != nil {
					t.Fatalf("WaitForNotification = %v", err)
				}
				if m.Payload == "end" {
					return n
				}
				n++
			}
		}
		release(t, take(t, l, key, time.Minute))
		if n := heard(); n != 0 {
			t.Errorf("%d notifications of a release for which nobody waits; want none", n)
		}
		lock := take(t, l, key, time.Minute)
		execute(t, ear, fmt.Sprintf("SELECT pg_advisory_lock_shared(%d)", number))
		release(t, lock)
		if n := heard(); n != 1 {
			t.Errorf("%d notifications of a release while somebody shares the advisory lock; want 1", n)
		}
		execute(t, ear, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d)", number))
		lock = take(t, l, key, time.Minute)
		release(t, lock)
		if n := heard(); n != 0 {
			t.Errorf("%d notifications after the waiter has gone; want none", n)
		}

		// A waiter of the library, of which another one is told that the key is another's.
		lock = take(t, l, key, time.Minute)
		waiting := newLocker(t, postgres.New(integration.Pool(t, url)), locco.WithFencing())
		waiter := awaitWakeUp(t, waiting, key)
		soon(t, "the waiter listens", func() bool { return listening(t, pool) == 1 })
		release(t, take(t, l, "another", time.Minute))
		release(t, lock)
		release(t, got(t, waiter))
		if n := heard(); n < 1 || n > 2 { // the waiter's own release may find its watch
			t.Errorf("%d notifications of a release for which somebody waits; want 1 or 2", n)
		}
		soon(t, "nobody listens any more", func() bool { return listening(t, pool) == 0 })

		silent := newLocker(t, postgres.New(pool, postgres.WithoutWakeUps()))
		lock = take(t, silent, key, time.Minute)
		execute(t, ear, fmt.Sprintf("SELECT pg_advisory_lock_shared(%d)", number))
		release(t, lock)
		if n := heard(); n != 0 {
			t.Errorf("%d notifications of a backend without wake-ups; want none", n)
		}
	})
}

// spec 8.6, 3.5: a waiter that arrives at the moment of a release is not missed.
func TestPostgresReleaseAtArrivalConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		holders := newLocker(t, postgres.New(integration.Pool(t, url)))
		waiters := newLocker(t, postgres.New(integration.Pool(t, url)))
		release(t, take(t, holders, "warm", time.Minute))
		const rounds, lanes = 200, 4
		var wg sync.WaitGroup
		for lane := range lanes {
			wg.Go(func() {
				for i := range rounds / lanes {
					key := fmt.Sprintf("%d.%d", lane, i)
					lock, err := holders.TryAcquire(t.Context(), key, time.Minute)
					if err != nil {
						t.Errorf("TryAcquire = %v", err)
						return
					}
					waiter := awaitWakeUp(t, waiters, key)
					time.Sleep(rand.N(8 * time.Millisecond)) // anywhere in the set-up of the watch
					if err := lock.Release(t.Context()); err != nil {
						t.Errorf("Release = %v", err)
					}
					select {
					case r := <-waiter:
						if r.err != nil {
							t.Errorf("Acquire = %v", r.err)
							return
						}
						_ = r.lock.Release(t.Context())
					case <-time.After(patience):
						t.Errorf("the waiter of %s was missed", key)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// spec 8: a pool of two serves any number of holders and waiters, with one connection
// more for all who wait.
func TestPostgresPoolOfTwo(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		admin := integration.Pool(t, url, named("admin"))
		pool := integration.Pool(t, url, two, named("two"))
		b := postgres.New(pool)
		l := newLocker(t, b, locco.WithFencing())
		others := newLocker(t, b, locco.WithFencing())
		const n = 50
		var holders []*locco.Lock
		var waiters []<-chan taken
		for i := range n {
			key := fmt.Sprint("k", i)
			holders = append(holders, take(t, l, key, 2*time.Second, locco.AutoExtend(time.Hour)))
			waiters = append(waiters, awaitWakeUp(t, others, key))
		}
		connections := func() int {
			return scanned[int](t, admin, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'two'`)
		}
		most := 0
		soon(t, "all wait", func() bool { most = max(most, connections()); return listening(t, admin) == n })
		until := time.Now().Add(3 * time.Second) // longer than the leases
		soon(t, "the leases are renewed", func() bool {
			most = max(most, connections())
			return time.Now().After(until)
		})
		for i, lock := range holders {
			if lock.State() != locco.StateHeld {
				t.Errorf("%s is %s: %v; want held", lock.Key(), lock.State(), lock.Err())
			}
			release(t, lock)
			next := got(t, waiters[i])
			if next.Fence() <= lock.Fence() {
				t.Errorf("spec 6.1: fence %d after %d", next.Fence(), lock.Fence())
			}
			release(t, next)
			most = max(most, connections())
		}
		if most != 3 {
			t.Errorf("%d connections; want those of the pool and one", most)
		}
		soon(t, "the listening connection is closed", func() bool { return connections() <= 2 })
	})
}

// spec 4.4, 8.6: sessions that are terminated cost neither the holder its lock nor the
// waiter its wake-up, and the listener comes back without spinning.
func TestPostgresTerminatedSessions(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		w := &witness{}
		admin := connectTo(t, url, func(c *pgx.ConnConfig) { c.RuntimeParams["application_name"] = "admin" })
		var opened sync.Map
		count := func(c *pgxpool.Config) {
			c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
				opened.Store(conn.PgConn().PID(), true)
				return nil
			}
		}
		holder := newLocker(t, postgres.New(integration.Pool(t, url)), locco.WithFencing())
		j := &journal{}
		waiting := newLocker(t, postgres.New(integration.Pool(t, url, count)), locco.WithFencing(), j.option())
		lock := take(t, holder, "k", 15*time.Second, locco.AutoExtend(time.Hour))
		w.granted(t, lock)
		waiter := awaitWakeUp(t, waiting, "k")
		listens := func() bool { return listening(t, admin) == 1 }
		soon(t, "the waiter listens", listens)
		const kills = 4
		for range kills {
			killed := scanned[int](t, admin, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			if killed == 0 {
				t.Error("nobody was there to be terminated")
			}
			soon(t, "the listener is gone", func() bool {
				return scanned[int](t, admin, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'`) <= 1
			})
			soon(t, "the waiter listens again", listens)
			soon(t, "the holder has its lock", func() bool {
				if err := lock.Err(); err != nil {
					t.Fatalf("the lock is lost: %v", err)
				}
				return lock.Check(t.Context()) == nil
			})
		}
		n := 0
		opened.Range(func(_, _ any) bool { n++; return true })
		if n > 12*kills {
			t.Errorf("%d connections were opened after %d terminations; want few: somebody spins", n, kills)
		}
		soon(t, "calls work again", func() bool { return lock.Extend(t.Context(), 15*time.Second) == nil })
		soon(t, "a look after the last gap", func() bool { return j.wakeUps("k", locco.OutcomeReceived) >= 1 })
		releaseAnyway(t, lock)
		w.granted(t, got(t, waiter))
	})
}

// spec 8.6: a pool whose connections give notifications to a function of the caller's own
// has wake-ups too.
func TestPostgresOnNotification(t *testing.T) {
	t.Parallel()
	url := integration.SharedPostgres(t, integration.Postgres17).Database(t)
	admin := integration.Pool(t, url)
	holder := newLocker(t, postgres.New(admin))
	own := func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	}
	waiting := newLocker(t, postgres.New(integration.Pool(t, url, own)))
	locks := []*locco.Lock{take(t, holder, "a", time.Hour), take(t, holder, "b", time.Hour)}
	waiters := []<-chan taken{awaitWakeUp(t, waiting, "a"), awaitWakeUp(t, waiting, "b")}
	soon(t, "both are listened to", func() bool { return listening(t, admin) == 2 })
	for i, lock := range locks {
		release(t, lock)
		release(t, got(t, waiters[i]))
	}
}

// spec 8.6: watches of other keys are set up at once, whatever the caller's pool does with
// contexts that end, and whoever waits already misses nothing.
func TestPostgresWatchesWithCancelRequests(t *testing.T) {
	t.Parallel()
	n := integration.SharedPostgres(t, integration.Postgres17)
	url := n.Database(t)
	admin := integration.Pool(t, url)
	holder := newLocker(t, postgres.New(admin))
	j := &journal{}
	slow := func(c *pgxpool.Config) { c.ConnConfig.BuildContextWatcherHandler = cancelsFor(time.Minute) }
	waiting := newLocker(t, postgres.New(integration.Pool(t, url, slow)), j.option())
	var locks []*locco.Lock
	var waiters []<-chan taken
	for i := range 5 {
		key := fmt.Sprint("k", i)
		locks = append(locks, take(t, holder, key, time.Hour))
		waiters = append(waiters, awaitWakeUp(t, waiting, key))
		soon(t, key+" is listened to", func() bool { return listening(t, admin) == i+1 })
	}
	for i, lock := range locks {
		release(t, lock)
		release(t, got(t, waiters[i]))
	}
	for _, e := range j.of("k1", locco.EventNotice) {
		t.Errorf("notice: %v; want none", e.Err)
	}
}
