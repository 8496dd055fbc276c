package integration_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	loccomongo "github.com/locco-go/locco/mongo"
)

// eachMongoDatabase runs the test on every server, with a database of its own.
func eachMongoDatabase(t *testing.T, test func(t *testing.T, n *integration.MongoNode, database string)) {
	t.Helper()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.SharedMongo(t, m)
		test(t, n, n.Database(t))
	})
}

// mongoBackend is a backend on a client of its own. Addr, if it is not "", is another way
// to the server.
func mongoBackend(t *testing.T, n *integration.MongoNode, database, addr string) *loccomongo.Backend {
	t.Helper()
	return loccomongo.New(n.Client(t, func(o *options.ClientOptions) {
		if addr != "" {
			o.SetHosts([]string{addr}).SetDirect(true).SetReplicaSet("")
		}
	}).Database(database).Collection(loccomongo.DefaultCollection))
}

// spec 3.7, 4.4, 5.3: a server that is stopped loses no lease. Meanwhile calls fail, the
// holder believes in its lease as long as it runs, and a waiter goes on.
func TestMongoStopped(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.StartMongo(t, m)
		holder := newLocker(t, mongoBackend(t, n, "app", ""), locco.WithFencing(), locco.WithCallTimeout(2*time.Second))
		other := newLocker(t, mongoBackend(t, n, "app", ""), locco.WithFencing(), locco.WithCallTimeout(2*time.Second))
		w, ws := &witness{}, &witness{}
		long := take(t, holder, "long", time.Hour)
		w.granted(t, long)
		short := take(t, holder, "short", 3*time.Second, locco.AutoExtend(time.Hour))
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

// spec 5.3, 2.2: during a pause of the server that is longer than the lease its holder knows
// by its own clock that it has ended, and nobody is said to hold a key.
func TestMongoPaused(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.StartMongo(t, m)
		w := &witness{}
		callTimeout := locco.WithCallTimeout(time.Second)
		holder := newLocker(t, mongoBackend(t, n, "app", ""), locco.WithFencing(), callTimeout)
		waiter := newLocker(t, mongoBackend(t, n, "app", ""), locco.WithFencing(), callTimeout)
		long := take(t, holder, "long", time.Minute, locco.AutoExtend(2*time.Minute), locco.ExtendEvery(200*time.Millisecond))
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
func TestMongoSilentNetwork(t *testing.T) {
	t.Parallel()
	eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
		proxy := integration.StartProxy(t, n.Addr)
		w := &witness{}
		behind := newLocker(t, mongoBackend(t, n, database, proxy.Addr), locco.WithFencing(), locco.WithCallTimeout(time.Second))
		direct := newLocker(t, mongoBackend(t, n, database, ""), locco.WithFencing())
		lock := take(t, behind, "k", 3*time.Second, locco.AutoExtend(time.Minute))
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
	})
}

// spec 2.6, 5.4: a reply that is lost after the command was applied. Our own grant never
// comes back as held, and a release counts.
func TestMongoLostReply(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		t.Run("Fenced="+strconv.FormatBool(fenced), func(t *testing.T) {
			t.Parallel()
			eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
				mongoLostReply(t, n, database, fenced)
			})
		})
	}
}

func mongoLostReply(t *testing.T, n *integration.MongoNode, database string, fenced bool) {
	t.Helper()
	var opts []locco.Option
	if fenced {
		opts = append(opts, locco.WithFencing())
	}
	proxy := integration.StartProxy(t, n.Addr)
	l := newLocker(t, mongoBackend(t, n, database, proxy.Addr), opts...)
	direct := newLocker(t, mongoBackend(t, n, database, ""), opts...)
	lost := func(what, request string, do func()) {
		t.Helper()
		dropped := proxy.DropReply(request)
		do()
		select {
		case <-dropped:
		case <-time.After(patience):
			t.Fatalf("the reply to %s was not dropped", what)
		}
	}
	for i := range 3 {
		key := "the key " + strconv.Itoa(i)
		w := &witness{}
		var lock *locco.Lock
		lost("Acquire", key, func() { lock = take(t, l, key, time.Minute, locco.RetryDelay(10*time.Millisecond)) })
		wantHeld(t, lock)
		w.granted(t, lock)
		// The driver may repeat an update by itself, so that nobody notices.
		lost("Extend", key, func() { _ = lock.Extend(t.Context(), time.Minute) })
		wantHeld(t, lock)
		lost("Check", key, func() {
			if err := lock.Check(t.Context()); errors.Is(err, locco.ErrLost) {
				t.Errorf("Check whose reply is lost = %v", err)
			}
		})
		wantHeld(t, lock)
		lost("Release", key, func() { releaseAnyway(t, lock) })
		next, err := direct.TryAcquire(t.Context(), key, time.Minute)
		if err != nil {
			t.Fatalf("TryAcquire of the key that was freed = %v", err)
		}
		w.granted(t, next)
		release(t, next)

		// TryAcquire does not repeat: it tells a failure from "held", and gives back.
		lost("TryAcquire", key, func() {
			if lock, err := l.TryAcquire(t.Context(), key, time.Minute); err == nil {
				release(t, lock) // repeated by the driver
			} else {
				wantFailure(t, "TryAcquire whose reply is lost", err)
			}
		})
		soon(t, "the key is given back", func() bool {
			lock, err := direct.TryAcquire(t.Context(), key, time.Minute)
			return err == nil && lock.Release(t.Context()) == nil
		})
	}
}

// spec 1.1, 5.3, 6.1: nobody holds a key twice, whatever happens to the connections.
func TestMongoExclusionConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
		proxy := integration.StartProxy(t, n.Addr)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const enough = 40
		w := &witness{}
		var grants atomic.Int32
		var wg sync.WaitGroup
		for _, addr := range []string{"", proxy.Addr} {
			l := newLocker(t, mongoBackend(t, n, database, addr), locco.WithFencing(), locco.WithCallTimeout(time.Second))
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lock, err := l.Acquire(ctx, "hot", 800*time.Millisecond, locco.RetryForever(), locco.RetryDelay(20*time.Millisecond))
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
		for i := 0; grants.Load() < enough && ctx.Err() == nil; i++ {
			time.Sleep(300 * time.Millisecond)
			if i%3 == 2 {
				proxy.Silence()
				time.Sleep(300 * time.Millisecond)
				proxy.Resume()
			} else {
				proxy.Cut()
			}
		}
		cancel()
		wg.Wait()
		if n := grants.Load(); n < enough {
			t.Errorf("%d grants in a minute; want more", n)
		}
	})
}
