package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres is a major version of Postgres.
type Postgres string

// The servers that the tests run on.
const (
	Postgres15 Postgres = "Postgres15"
	Postgres17 Postgres = "Postgres17"
	Postgres18 Postgres = "Postgres18"
)

// Postgreses returns all of them.
func Postgreses() []Postgres { return []Postgres{Postgres15, Postgres17, Postgres18} }

func (p Postgres) kind() kind {
	switch p {
	case Postgres15:
		return kind{"POSTGRES15", "postgres:15", "postgres"}
	case Postgres17:
		return kind{"POSTGRES", "postgres:17", "postgres"}
	case Postgres18:
		return kind{"POSTGRES18", "postgres:18", "postgres"}
	default:
		panic("integration: no such server: " + string(p))
	}
}

// PostgresNode is one server of Postgres.
type PostgresNode struct {
	server

	// URL is that of its superuser in the database postgres.
	URL string
}

// SharedPostgres returns a server that all tests of the run may use at the same time.
// It ends with the run. LOCCO_TEST_POSTGRES_URL, LOCCO_TEST_POSTGRES15_URL and
// LOCCO_TEST_POSTGRES18_URL name one that runs already; the user must be allowed to
// create databases and roles.
func SharedPostgres(t testing.TB, p Postgres) *PostgresNode {
	t.Helper()
	if url := os.Getenv("LOCCO_TEST_" + p.kind().env + "_URL"); url != "" {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatalf("LOCCO_TEST_%s_URL: %v", p.kind().env, err)
		}
		addr := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
		n := newPostgresNode(server{Addr: addr, Name: addr, shared: true}, url)
		if err := n.wait(t.Context()); err != nil {
			t.Fatalf("LOCCO_TEST_%s_URL: %v", p.kind().env, err)
		}
		return n
	}
	n, err := shared(t, p, func() (*PostgresNode, error) {
		n, err := startPostgres(context.Background(), p, nil)
		if err != nil {
			return nil, err
		}
		n.shared = true
		err = n.wait(context.Background())
		return n, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// StartPostgres starts a server for this test. Args are added to its command, such as
// "-c", "max_connections=20".
func StartPostgres(t testing.TB, p Postgres, args ...string) *PostgresNode {
	t.Helper()
	n, err := startPostgres(t.Context(), p, args)
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, n.Name, n.id)
	if err := n.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func startPostgres(ctx context.Context, p Postgres, args []string) (n *PostgresNode, err error) {
	if err := run.begin(ctx); err != nil {
		return nil, err
	}
	err = run.withPorts(1, func(ports []int) error {
		addr := net.JoinHostPort(host, strconv.Itoa(ports[0]))
		n = newPostgresNode(server{Addr: addr, Name: string(p) + " at " + addr, port: ports[0]}, "postgres://postgres@"+addr+"/postgres")
		n.id, err = run.start(ctx, spec{
			image:   image(p.kind()),
			cmd:     p.command(ports[0], args...),
			env:     trust,
			publish: ports,
		})
		return err
	})
	return n, err
}

// PostgresReplicated is a primary and a standby that its commits wait for.
type PostgresReplicated struct {
	Primary, Standby *PostgresNode
}

// StartPostgresReplicated starts a primary, and a standby that was copied from it and
// follows it. The primary has synchronous_standby_names set, so that a commit waits for
// the standby. Args are added to the commands of both.
func StartPostgresReplicated(t testing.TB, p Postgres, args ...string) *PostgresReplicated {
	t.Helper()
	network, ports := postgresNetwork(t, p, 2)
	primary := startPostgresIn(t, p, network, ports[0], "primary", nil, p.command(ports[0], args...))
	// What is started as root, in the public image, goes on as the server's user. A copy
	// that is there already is kept, so that a standby can be restarted.
	script := `set -e
as() { if [ "$(id -u)" = 0 ]; then exec gosu postgres "$@"; else exec "$@"; fi; }
[ -e /tmp/standby/PG_VERSION ] || (as pg_basebackup -D /tmp/standby -R -X stream -c fast -d "$0")
export PGDATA=/tmp/standby
as "$@"`
	source := fmt.Sprintf("host=%s port=%d user=postgres application_name=standby", host, ports[0])
	standby := startPostgresIn(t, p, network, ports[1], "standby",
		append([]string{"sh", "-c", script, source}, p.command(ports[1], append(args, "-c", "listen_addresses=*")...)...), nil)
	s := &PostgresReplicated{primary, standby}
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	s.WaitLinked(t)
	return s
}

// WaitLinked waits until the primary counts on the standby.
func (s *PostgresReplicated) WaitLinked(t testing.TB) {
	t.Helper()
	err := eventually(t.Context(), s.Standby.Name+" follows its primary", func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, s.Primary.URL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		var names, state string
		err = conn.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names'),
			coalesce((SELECT state || ' ' || sync_state FROM pg_stat_replication), '')`).Scan(&names, &state)
		if err != nil || names != "standby" || state != "streaming sync" {
			return notYet(err, "the primary says %q", state)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// StartPgBouncer starts a server, and before it PgBouncer, which gives each transaction
// another connection. It returns the URL of the database postgres through it, for
// clients that prepare no statements: PgBouncer may know nothing of them.
func StartPgBouncer(t testing.TB, p Postgres, args ...string) (behind *PostgresNode, url string) {
	t.Helper()
	network, ports := postgresNetwork(t, p, 2)
	behind = startPostgresIn(t, p, network, ports[0], "server", nil, p.command(ports[0], args...))
	config := strings.Join([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d user=postgres", host, ports[0]),
		"[pgbouncer]",
		"listen_addr = *",
		fmt.Sprintf("listen_port = %d", ports[1]),
		"unix_socket_dir =",
		"auth_type = any",
		"pool_mode = transaction",
		"default_pool_size = 20",
		"max_client_conn = 500",
		"",
	}, "\n")
	script := `printf '%s' "$0" >/tmp/pgbouncer.ini; PATH=$PATH:/usr/sbin exec pgbouncer /tmp/pgbouncer.ini`
	id, err := run.start(t.Context(), spec{
		image:      image(pgBouncer),
		entrypoint: []string{"sh", "-c", script, config},
		network:    network,
	})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, "PgBouncer", id)
	addr := net.JoinHostPort(host, strconv.Itoa(ports[1]))
	url = "postgres://postgres@" + addr + "/postgres?default_query_exec_mode=exec"
	if err := newPostgresNode(server{Addr: addr, Name: "PgBouncer at " + addr}, url).wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return behind, url
}

// pgBouncer is no Postgres, but speaks like one.
var pgBouncer = kind{"PGBOUNCER", "edoburu/pgbouncer:latest", "pgbouncer"}

// postgresNetwork makes a network for n servers, as [topology] has it.
func postgresNetwork(t testing.TB, p Postgres, n int) (id string, ports []int) {
	t.Helper()
	if err := run.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := run.withPorts(n, func(free []int) (err error) {
		ports = free
		id, err = run.start(t.Context(), spec{
			image:      image(p.kind()),
			entrypoint: []string{"sleep", "infinity"},
			publish:    free,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, "the network of "+string(p), id)
	return id, ports
}

func startPostgresIn(t testing.TB, p Postgres, network string, port int, what string, entrypoint, cmd []string) *PostgresNode {
	t.Helper()
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	n := newPostgresNode(server{Addr: addr, Name: string(p) + " " + what + " at " + addr, port: port}, "postgres://postgres@"+addr+"/postgres")
	var err error
	n.id, err = run.start(t.Context(), spec{
		image:      image(p.kind()),
		entrypoint: entrypoint,
		cmd:        cmd,
		env:        trust,
		network:    network,
	})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, n.Name, n.id)
	if err := n.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// trust makes the image let everybody in.
var trust = map[string]string{"POSTGRES_HOST_AUTH_METHOD": "trust"}

// command returns the command of a server that does not wait for the disk: nothing
// here outlives the machine.
func (p Postgres) command(port int, args ...string) []string {
	return append([]string{
		"postgres", "-c", "port=" + strconv.Itoa(port), "-c", "fsync=off", "-c", "max_connections=200",
	}, args...)
}

func newPostgresNode(s server, url string) *PostgresNode {
	n := &PostgresNode{server: s, URL: url}
	n.ping = func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		return conn.Ping(ctx)
	}
	return n
}

// Database makes a new database, which is dropped at the end of the test, and returns
// its URL.
func (n *PostgresNode) Database(t testing.TB) string {
	t.Helper()
	config, err := pgx.ParseConfig(n.URL)
	if err != nil {
		t.Fatalf("%s: %v", n.URL, err)
	}
	name := fmt.Sprintf("test_%d", time.Now().UnixNano())
	n.Exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
		defer cancel()
		if err := n.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil && n.shared {
			t.Errorf("drop the database: %v", err)
		}
	})
	return fmt.Sprintf("postgres://%s@%s/%s", config.User, n.Addr, name)
}

// Exec runs statements as the superuser, on a connection of its own.
func (n *PostgresNode) Exec(t testing.TB, sql string) {
	t.Helper()
	if err := n.exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (n *PostgresNode) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, n.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// Pool returns a pool of connections to url, which is closed with the test.
func Pool(t testing.TB, url string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	for _, o := range options {
		o(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(pool.Close)
	return pool
}
