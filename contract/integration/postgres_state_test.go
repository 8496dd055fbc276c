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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// The tests of this file look at what the server has stored.

// spec 8.3: a refused attempt writes nothing: no WAL, no row version, no lock on the row,
// no number of the sequence.
func TestPostgresRefusalWritesNothing(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		// Alone, and without what writes by itself.
		n := integration.StartPostgres(t, p, "-c", "autovacuum=off", "-c", "checkpoint_timeout=1d",
			"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "stats_fetch_consistency=none")
		b := postgres.New(integration.Pool(t, n.URL))
		l := newLocker(t, b, locco.WithFencing())
		db := connectTo(t, n.URL)
		take(t, l, "held", time.Hour)
		take(t, l, "held2", time.Hour)
		if g, err := b.Acquire(call(t), locco.Lease{Key: "own", Token: "me", TTL: time.Hour, Fenced: true}); err != nil || !g.OK {
			t.Fatalf("Acquire = %+v, %v", g, err)
		}
		other := newLocker(t, postgres.New(integration.Pool(t, n.URL)), locco.WithFencing())
		lease := func(key string) locco.Lease {
			return locco.Lease{Key: key, Token: "other", TTL: time.Minute}
		}
		with := func(key string, f func(l *locco.Lease)) locco.Lease {
			l := lease(key)
			f(&l)
			return l
		}
		refused := func(what string, ok bool, err error) {
			t.Helper()
			if ok || err != nil {
				t.Fatalf("%s = %v, %v; want a refusal", what, ok, err)
			}
		}
		many := func(ls ...locco.Lease) {
			t.Helper()
			grants, at, err := b.AcquireMany(call(t), ls)
			refused("AcquireMany", grants != nil || at < 0, err)
		}
		attempts := map[string]func(){
			"Acquire": func() {
				g, err := b.Acquire(call(t), lease("held"))
				refused("Acquire", g.OK, err)
			},
			"Fenced": func() {
				g, err := b.Acquire(call(t), with("held", func(l *locco.Lease) { l.Fenced, l.WantLeft = true, true }))
				refused("Acquire", g.OK, err)
				if g.Left <= 0 {
					t.Errorf("Acquire = %+v; want what is left", g)
				}
			},
			"Again": func() {
				g, err := b.Acquire(call(t), with("held", func(l *locco.Lease) { l.Fenced, l.Again = true, true }))
				refused("Acquire", g.OK, err)
			},
			"OwnTokenWithoutAgain": func() {
				g, err := b.Acquire(call(t), with("own", func(l *locco.Lease) { l.Fenced, l.Token = true, "me" }))
				refused("Acquire", g.OK, err)
			},
			"TryAcquire": func() {
				if _, err := other.TryAcquire(t.Context(), "held", time.Minute); !errors.Is(err, locco.ErrHeld) {
					t.Fatalf("TryAcquire = %v; want ErrHeld", err)
				}
			},
			"ManyFirst": func() { many(lease("held"), lease("z1"), lease("z2")) },
			"ManyLast":  func() { many(lease("a1"), lease("a2"), lease("held")) },
			"ManyFenced": func() {
				many(with("a1", func(l *locco.Lease) { l.Fenced = true }), with("held", func(l *locco.Lease) { l.Fenced, l.Again = true, true }))
			},
			"Transfer": func() {
				g, err := b.Transfer(call(t), "nobody", with("held", func(l *locco.Lease) { l.Fenced, l.Again = true, true }))
				refused("Transfer", g.OK, err)
			},
			"Extend": func() {
				ok, err := b.Extend(call(t), lease("held"))
				refused("Extend", ok, err)
			},
			"ExtendMany": func() {
				for _, v := range b.ExtendMany(call(t), []locco.Lease{lease("held"), lease("held2"), lease("absent")}) {
					refused("ExtendMany", v.OK, v.Err)
				}
			},
			"Release": func() {
				ok, err := b.Release(call(t), "held", "other")
				refused("Release", ok, err)
			},
			"ReleaseAbsent": func() {
				ok, err := b.Release(call(t), "absent", "other")
				refused("Release", ok, err)
			},
			"Holds": func() {
				ok, err := b.Holds(call(t), "held", "other")
				refused("Holds", ok, err)
			},
		}
		// state is all that a write would change. What the statistics count is sent at the
		// end of a transaction, a second later at the earliest, so they come last.
		const state = `SELECT concat_ws(' ', pg_current_wal_insert_lsn(), (SELECT xmax FROM (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xmax) AS s),
			(SELECT last_value || ' ' || is_called FROM locco_locks_fence),
			(SELECT string_agg(concat_ws(' ', ctid, xmin, xmax, key, token, expires_at), ', ' ORDER BY key) FROM locco_locks))`
		const counts = `SELECT concat_ws(' ', n_tup_ins, n_tup_upd, n_tup_del) FROM pg_stat_user_tables WHERE relname = 'locco_locks'`
		for _, attempt := range attempts {
			attempt() // the first read of a page may note something there
		}
		written := scanned[string](t, db, counts)
		for name, attempt := range attempts {
			before := scanned[string](t, db, state)
			for range 20 {
				attempt()
			}
			if after := scanned[string](t, db, state); after != before {
				t.Errorf("%s: the server had %q, and has %q after refused attempts; want no change", name, before, after)
			}
		}
		// The counts of a session arrive with its end.
		b2 := integration.Pool(t, n.URL)
		for _, attempt := range attempts {
			attempt()
		}
		b2.Close()
		if after := scanned[string](t, db, counts); after != "3 0 0" && after != written {
			t.Errorf("the server has counted inserts, updates, deletes %q; want the three grants alone", after)
		}
		// And a grant does change it, or the test sees nothing.
		before := scanned[string](t, db, state)
		_ = take(t, other, "free", time.Minute)
		if after := scanned[string](t, db, state); after == before {
			t.Error("a grant changes nothing: the test is blind")
		}
	})
}

// settled is an operation that grants, blocked behind a transaction which holds the row.
type settled struct {
	name string
	live bool
	do   func(ctx context.Context, b *postgres.Backend, key string) (int64, error)
}

// spec 6.4, 8.3: the number is drawn when the row is the grant's. An attempt that waited
// for the row gets a larger one than the grants that it waited for.
func TestPostgresFenceAfterTheRow(t *testing.T) {
	t.Parallel()
	lease := func(key string) locco.Lease {
		return locco.Lease{Key: key, Token: "stalled", TTL: time.Minute, Fenced: true}
	}
	operations := []settled{
		{name: "Acquire", do: func(ctx context.Context, b *postgres.Backend, key string) (int64, error) {
			g, err := b.Acquire(ctx, lease(key))
			return g.Fence, err
		}},
		{name: "AcquireMany", do: func(ctx context.Context, b *postgres.Backend, key string) (int64, error) {
			gs, _, err := b.AcquireMany(ctx, []locco.Lease{lease(key)})
			if err != nil || gs == nil {
				return 0, err
			}
			return gs[0].Fence, nil
		}},
		{name: "Transfer", live: true, do: func(ctx context.Context, b *postgres.Backend, key string) (int64, error) {
			g, err := b.Transfer(ctx, "holder", lease(key))
			return g.Fence, err
		}},
	}
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		b := postgres.New(integration.Pool(t, url))
		db := integration.Pool(t, url)
		if _, err := b.Acquire(call(t), locco.Lease{Key: "warm", Token: "t", TTL: time.Minute, Fenced: true}); err != nil {
			t.Fatal(err)
		}
		for _, op := range operations {
			for _, how := range []string{"Granted", "Swept"} {
				if op.live && how == "Swept" {
					continue
				}
				t.Run(op.name+how, func(t *testing.T) {
					// The server waits for a row for a second at most, which may be too little
					// for a busy machine to see it wait.
					for try := range 20 {
						key := op.name + how + strconv.Itoa(try)
						if op.behind(t, url, b, db, key, how == "Swept") {
							return
						}
					}
					t.Error("no attempt could be made to wait for the row for less than a second")
				})
			}
		}
	})
}

// behind reports whether op came to wait, and was granted.
func (op *settled) behind(t *testing.T, url string, b *postgres.Backend, db postgres.DB, key string, swept bool) bool {
	t.Helper()
	left := "-1 hour"
	if op.live {
		left = "1 hour"
	}
	execute(t, db, fmt.Sprintf(`INSERT INTO locco_locks VALUES ('%s', 'holder', clock_timestamp() + interval '%s')`, key, left))
	tx := begin(t, url)
	if swept {
		execute(t, tx, fmt.Sprintf(`DELETE FROM locco_locks WHERE key = '%s'`, key))
	} else {
		execute(t, tx, fmt.Sprintf(`SELECT FROM locco_locks WHERE key = '%s' FOR UPDATE`, key))
	}
	type outcome struct {
		fence int64
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		fence, err := op.do(call(t), b, key)
		done <- outcome{fence, err}
	}()
	var early *outcome
	soon(t, "the attempt waits, or has waited for long enough", func() bool {
		select {
		case o := <-done:
			early = &o
			return true
		default:
			return blocked(t, db) > 0
		}
	})
	// What another grant does meanwhile: it draws a number, is stored, and ends.
	between := scanned[int64](t, tx, `SELECT nextval('locco_locks_fence')`)
	if !swept {
		execute(t, tx, fmt.Sprintf(`UPDATE locco_locks SET expires_at = clock_timestamp() + interval '%s' WHERE key = '%s'`, left, key))
	}
	commit(t, tx)
	if early == nil {
		o := <-done
		early = &o
	}
	if code(early.err) == "55P03" {
		return false
	}
	if early.err != nil || early.fence == 0 {
		t.Fatalf("the attempt that waited: fence %d, %v; want a grant", early.fence, early.err)
	}
	if early.fence <= between {
		t.Errorf("spec 6.4: the attempt that waited has fence %d after %d", early.fence, between)
	}
	return true
}

// spec 6.4: fences grow over release, expiry, hand-over, sweep, and a server that was
// killed; the leases survive the latter.
func TestPostgresFencesGrow(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		n := integration.StartPostgres(t, p)
		w := &witness{}
		b := postgres.New(integration.Pool(t, n.URL))
		l := newLocker(t, b, locco.WithFencing())
		db := integration.Pool(t, n.URL)
		const key = "k"
		first := take(t, l, key, time.Minute)
		w.granted(t, first)
		waiter := await(t, l, key, time.Minute)
		time.Sleep(50 * time.Millisecond) // else it is a release and a grant, which is tested next
		release(t, first)
		second := got(t, waiter)
		w.granted(t, second)
		release(t, second)
		short := take(t, l, key, 20*time.Millisecond)
		w.granted(t, short)
		ended(t, db, key)
		expired := take(t, l, key, 20*time.Millisecond) // takes the row over
		w.granted(t, expired)
		ended(t, db, key)
		if swept, err := b.SweepExpired(call(t), 10); err != nil || swept != 1 {
			t.Errorf("SweepExpired = %d, %v; want 1", swept, err)
		}
		last := take(t, l, key, time.Hour)
		w.granted(t, last)

		n.Restart(t)
		other := newLocker(t, postgres.New(integration.Pool(t, n.URL)), locco.WithFencing())
		if _, err := other.TryAcquire(t.Context(), key, time.Minute); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire after a restart = %v; want ErrHeld: the lease survives", err)
		}
		soon(t, "the holder has its lock", func() bool { return last.Check(t.Context()) == nil })
		release(t, last)
		w.granted(t, take(t, other, key, time.Minute))
	})
}

// spec 8.3: a sweep deletes what has ended, up to its limit, waits for nobody's row, and
// takes nothing from a grant that comes at the same time.
func TestPostgresSweep(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		b := postgres.New(pool)
		sweep := func(limit, want int) {
			t.Helper()
			if n, err := b.SweepExpired(call(t), limit); err != nil || n != want {
				t.Errorf("SweepExpired(%d) = %d, %v; want %d", limit, n, err, want)
			}
		}
		sweep(5, 0) // makes the table
		const expired = `INSERT INTO locco_locks SELECT 'old' || i, 't', clock_timestamp() - interval '1 minute' FROM generate_series(1, 10) AS i`
		execute(t, pool, expired)
		if g, err := b.Acquire(call(t), locco.Lease{Key: "live", Token: "t", TTL: time.Hour}); err != nil || !g.OK {
			t.Fatalf("Acquire = %+v, %v", g, err)
		}
		sweep(4, 4)
		tx := begin(t, url)
		locked := scanned[string](t, tx, `SELECT key FROM locco_locks WHERE key LIKE 'old%' LIMIT 1 FOR UPDATE`)
		sweep(100, 5)
		commit(t, tx)
		if left := scanned[[]string](t, pool, `SELECT array_agg(key ORDER BY key) FROM locco_locks`); len(left) != 2 || left[0] != "live" || left[1] != locked {
			t.Errorf("the table has %q; want live and the row that was locked, %q", left, locked)
		}
		sweep(100, 1)
		for _, limit := range []int{0, -1} {
			if _, err := b.SweepExpired(call(t), limit); !errors.Is(err, locco.ErrInvalid) {
				t.Errorf("SweepExpired(%d) = %v; want ErrInvalid", limit, err)
			}
		}

		// At the same time: keys end all the time, and each is granted to one alone.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := b.SweepExpired(call(t), 100); err != nil {
					t.Errorf("SweepExpired = %v", err)
				}
			}
		})
		l := newLocker(t, b, locco.WithFencing())
		var ws [2]witness
		var grants atomic.Int64
		for i := range 6 {
			wg.Go(func() {
				for j := 0; ctx.Err() == nil; j++ {
					at := (i + j) % len(ws)
					lock, err := l.Acquire(ctx, "k"+strconv.Itoa(at), 200*time.Millisecond, locco.RetryDelay(5*time.Millisecond), locco.RetryForever())
					if err != nil {
						continue
					}
					ws[at].granted(t, lock)
					if grants.Add(1) == 40 {
						cancel()
					}
					if j%2 == 0 {
						_ = lock.Release(ctx)
					}
				}
			})
		}
		wg.Wait()
		for i := range ws {
			if len(ws[i].locks) == 0 {
				t.Error("nobody was granted a key while sweeps ran")
			}
		}
	})
}

// spec 2.6: an attempt at a set that had no answer, and comes after its own retry, neither
// is a grant nor changes the lease of the retry.
func TestPostgresLateSet(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		admin := integration.Pool(t, url)
		b := postgres.New(admin)
		cycle(t, b)
		execute(t, admin, `CREATE FUNCTION park() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('application_name') = 'parked' THEN PERFORM pg_advisory_lock_shared(1); END IF;
			RETURN NEW; END $$`, `CREATE TRIGGER park BEFORE INSERT ON locco_locks FOR EACH ROW EXECUTE FUNCTION park()`)
		gate := connectTo(t, url)
		execute(t, gate, `SELECT pg_advisory_lock(1)`)
		l := locco.Lease{Key: "k", Token: "t", TTL: time.Minute, Fenced: true}
		late := postgres.New(integration.Pool(t, url, named("parked")))
		type answer struct {
			refused int
			err     error
		}
		done := make(chan answer, 1)
		go func() {
			_, refused, err := late.AcquireMany(call(t), []locco.Lease{l, {Key: "l", Token: "u", TTL: time.Minute, Fenced: true}})
			done <- answer{refused, err}
		}()
		soon(t, "the set is on its way", func() bool { return blocked(t, admin) == 1 })
		again := l
		again.Again, again.TTL = true, time.Hour
		if g, err := b.Acquire(call(t), again); !g.OK || err != nil {
			t.Fatalf("Acquire = %+v, %v; want a grant", g, err)
		}
		execute(t, gate, `SELECT pg_advisory_unlock(1)`)
		if a := <-done; a.err == nil && a.refused < 0 {
			t.Error("the late set is granted beside its retry")
		}
		if left := scanned[float64](t, admin, `SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM locco_locks WHERE key = 'k'`); left < 3000 {
			t.Errorf("the lease of the retry runs for %v s more; want about an hour", left)
		}
	})
}

// spec 1.1, 3.7, 6.1: other isolation levels bring serialization failures, which are
// tried again. Nobody holds a key twice.
func TestPostgresIsolationConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		for _, level := range []string{"repeatable read", "serializable"} {
			t.Run(strings.Fields(level)[0], func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				const enough = 20
				var grants atomic.Int32
				w := &witness{}
				var wg sync.WaitGroup
				var lockers []*locco.Locker
				for range 2 {
					pool := integration.Pool(t, url, isolated(level))
					lockers = append(lockers, newLocker(t, postgres.New(pool), locco.WithFencing()))
				}
				key := level
				for i := range 8 {
					wg.Go(func() {
						l := lockers[i%len(lockers)]
						for ctx.Err() == nil {
							lock, err := l.Acquire(ctx, key, time.Minute, locco.RetryDelay(2*time.Millisecond), locco.RetryForever())
							if err != nil {
								if ctx.Err() == nil {
									t.Errorf("Acquire = %v; want a grant in the end", err)
								}
								return
							}
							w.granted(t, lock)
							if err := lock.Release(ctx); err != nil && code(err) != "40001" {
								t.Errorf("Release = %v", err)
							} else if err != nil {
								soon(t, "a release", func() bool { return lock.Release(ctx) == nil })
							}
							set, err := l.AcquireMany(ctx, []string{key + "1", key + "2"}, time.Minute, locco.RetryDelay(2*time.Millisecond), locco.RetryForever())
							if err != nil {
								if ctx.Err() == nil {
									t.Errorf("AcquireMany = %v; want a grant in the end", err)
								}
								return
							}
							soon(t, "a release of the set", func() bool { return set.Release(ctx) == nil })
							if grants.Add(1) == enough {
								cancel()
							}
						}
					})
				}
				wg.Wait()
				if n := grants.Load(); n < enough {
					t.Errorf("%d grants in a minute; want more", n)
				}
			})
		}
	})
}

func isolated(level string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level }
}

// spec 8.3: the names of the table and its sequence are taken as they are.
func TestPostgresNames(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		execute(t, pool, `CREATE SCHEMA "Odd.Schema'"`, `CREATE SCHEMA other`)
		longest := "l"
		for len(longest) < 57 {
			longest += "x"
		}
		for name, table := range map[string][]string{
			"UpperCase":     {"LocKs"},
			"Quotes":        {`a"b'c`},
			"Dots":          {"a.b"},
			"BackslashEnd":  {`a\`},
			"Backslashes":   {`a\'b\\c`},
			"Reserved":      {"select"},
			"Space":         {" a b "},
			"Unicode":       {"schlüssel"},
			"Dollar":        {"$1"},
			"Braces":        {"{fence}"},
			"Longest":       {longest},
			"Schema":        {"other", "locks"},
			"SchemaOdd":     {"Odd.Schema'", `x"\y.`},
			"SchemaLongest": {"other", longest},
		} {
			t.Run(name, func(t *testing.T) {
				b := postgres.New(pool, postgres.WithTable(table...))
				cycle(t, b)
				l := newLocker(t, b, locco.WithFencing())
				set, err := l.AcquireMany(t.Context(), []string{"a", "b"}, time.Minute)
				if err != nil {
					t.Fatalf("AcquireMany = %v", err)
				}
				if err := set.Extend(t.Context(), time.Minute); err != nil {
					t.Errorf("Extend of the set = %v", err)
				}
				waiter := await(t, l, "a", time.Minute)
				time.Sleep(20 * time.Millisecond)
				if err := set.Release(t.Context()); err != nil {
					t.Errorf("Release of the set = %v", err)
				}
				release(t, got(t, waiter))
				if _, err := b.SweepExpired(call(t), 10); err != nil {
					t.Errorf("SweepExpired = %v", err)
				}
				id := pgx.Identifier(table)
				kinds := scanned[[]string](t, pool, `SELECT array_agg(relkind::text ORDER BY relkind::text) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
					WHERE nspname = $1 AND relname::text IN ($2::text, $2::text || '_fence')`, append([]string{"public"}, table...)[len(table)-1], id[len(id)-1])
				if len(kinds) != 2 {
					t.Errorf("there are %q called %q; want a table and a sequence", kinds, table)
				}
			})
		}
		if _, err := locco.New(postgres.New(pool, postgres.WithTable(longest+"x"))); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("a name of 58 bytes: %v; want ErrInvalid", err)
		}
	})
}

// spec 8.3: the table is found on the search path, wherever that leads.
func TestPostgresSearchPath(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		admin := integration.Pool(t, url)
		execute(t, admin, `CREATE SCHEMA "My ""own"`, `CREATE SCHEMA late`)
		pool := integration.Pool(t, url, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["search_path"] = `nowhere, "My ""own", late`
		})
		cycle(t, postgres.New(pool))
		if n := scanned[int](t, admin, `SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
			WHERE nspname = 'My "own' AND relname IN ('locco_locks', 'locco_locks_fence')`); n != 2 {
			t.Errorf("%d objects in the first schema that there is; want the table and the sequence", n)
		}
		none := integration.Pool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "nowhere" })
		_, err := postgres.New(none).Acquire(call(t), locco.Lease{Key: "k", Token: "t", TTL: time.Minute})
		if !errors.Is(err, locco.ErrInvalid) || code(err) != "3F000" {
			t.Errorf("Acquire without a schema to create in = %v; want ErrInvalid with the server's error", err)
		}
	})
}
