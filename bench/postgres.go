package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

func postgresBackend(name string, kind integration.Postgres) backend {
	return backend{
		name: name,
		launch: func(ctx context.Context) (string, func() error, error) {
			return integration.LaunchPostgres(ctx, kind)
		},
		open: openPostgres,
	}
}

// statements is the one name under which pg_stat_statements counts.
const statements = "statements"

// postgresStore is a server of Postgres that has pg_stat_statements.
type postgresStore struct {
	pool  *pgxpool.Pool
	meter *pgxpool.Pool // reads the counters, so that it gets in nobody's way
	list  []*subject
}

func openPostgres(ctx context.Context, url string) (store, error) {
	st := &postgresStore{}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = crowd
	if st.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if st.meter, err = pgxpool.New(ctx, url); err != nil {
		st.pool.Close()
		return nil, err
	}
	if st.list, err = postgresSubjects(ctx, st.pool); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (st *postgresStore) close() {
	st.pool.Close()
	st.meter.Close()
}

func (st *postgresStore) subjects() []*subject { return st.list }

func (st *postgresStore) version(ctx context.Context) (text string, err error) {
	var fsync, commit string
	err = st.meter.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&text, &fsync, &commit)
	return fmt.Sprintf("Postgres %s, fsync %s, synchronous_commit %s", text, fsync, commit), err
}

// usage counts statements as round trips, which they are. The time that they took stands
// for the server's CPU, of which a database cannot tell.
func (st *postgresStore) usage(ctx context.Context) (usage, error) {
	var calls int64
	var took float64
	err := st.meter.QueryRow(ctx, `SELECT coalesce(sum(calls), 0), coalesce(sum(total_exec_time), 0)
		FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'`).Scan(&calls, &took)
	d := time.Duration(took * float64(time.Millisecond))
	return usage{commands: map[string]command{statements: {calls, d}}, reads: calls, cpu: d}, err
}

// postgresSubjects are the subjects on Postgres.
func postgresSubjects(ctx context.Context, pool *pgxpool.Pool) ([]*subject, error) {
	if _, err := pool.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		return nil, fmt.Errorf("the server needs shared_preload_libraries = 'pg_stat_statements': %w", err)
	}
	for _, sql := range []string{
		"CREATE TABLE IF NOT EXISTS bench_locks (key text COLLATE \"C\" PRIMARY KEY, token text NOT NULL, expires_at timestamptz NOT NULL)",
		"CREATE SEQUENCE IF NOT EXISTS bench_fence",
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	counted := []string{statements}
	list := []*subject{
		{name: "raw", commands: counted, cycle: rawPostgresCycle(pool)},
		{name: "advisory lock", commands: counted, hold: advisoryHold(pool)},
	}
	for _, v := range []struct {
		name    string
		options []postgres.Option
		locker  []locco.Option
		can     abilities
	}{
		{"locco, fenced", nil, []locco.Option{locco.WithFencing()}, abilities{wait: true, keep: true}},
		{"locco", nil, nil, abilities{}},
		{"locco, fenced, no wake-ups", []postgres.Option{postgres.WithoutWakeUps()}, []locco.Option{locco.WithFencing()}, abilities{wait: true}},
		{
			"locco, fenced, hook, auto-extension", nil,
			[]locco.Option{locco.WithFencing(), locco.WithEvents(func(locco.Event) {}), locco.WithDefaults(locco.AutoExtend(time.Hour))},
			abilities{},
		},
	} {
		s, err := loccoSubject(v.name, postgres.New(pool, v.options...), counted, v.can, v.locker...)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// rawPostgresCycle is what a program does that has no library: an upsert that takes over
// a row whose lease has ended, with the next number of a sequence, and a delete that
// compares.
func rawPostgresCycle(pool *pgxpool.Pool) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		token := hex.EncodeToString(random[:])
		var fence int64
		if err := pool.QueryRow(ctx, `INSERT INTO bench_locks AS l (key, token, expires_at)
			VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
			ON CONFLICT (key) DO UPDATE SET token = excluded.token, expires_at = excluded.expires_at
			WHERE l.expires_at <= clock_timestamp()
			RETURNING nextval('bench_fence')`, key, token, lease.Milliseconds()).Scan(&fence); err != nil {
			return err
		}
		tag, err := pool.Exec(ctx, "DELETE FROM bench_locks WHERE key = $1 AND token = $2", key, token)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("deleting %q gave %d", key, tag.RowsAffected())
		}
		return err
	}
}

// advisoryHold waits for a session's advisory lock, which takes a connection for as long
// as it is waited for and held.
func advisoryHold(pool *pgxpool.Pool) func(context.Context, string) (func(context.Context) error, error) {
	return func(ctx context.Context, key string) (func(context.Context) error, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key); err != nil {
			conn.Release()
			return nil, err
		}
		return func(ctx context.Context) error {
			defer conn.Release()
			_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key)
			return err
		}, nil
	}
}
