package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// fakeTx is a transaction of the caller's own kind.
type fakeTx struct {
	pgx.Tx
}

// spec 1.9: what is wrong with the database or an option is a validation error of
// locco.New, before anything is sent.
func TestValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 57)
	for name, c := range map[string]struct {
		backend *postgres.Backend
		ok      bool
	}{
		"Nil":            {nil, false},
		"NilInterface":   {postgres.New(nil), false},
		"NilPool":        {postgres.New((*pgxpool.Pool)(nil)), false},
		"NilConn":        {postgres.New((*pgx.Conn)(nil)), false},
		"NilTx":          {postgres.New((*pgxpool.Tx)(nil)), false},
		"Tx":             {postgres.New(fakeTx{}), false},
		"TxPointer":      {postgres.New(&fakeTx{}), false},
		"NoName":         {postgres.New(&fakeDB{}, postgres.WithTable()), false},
		"EmptyName":      {postgres.New(&fakeDB{}, postgres.WithTable("")), false},
		"EmptySchema":    {postgres.New(&fakeDB{}, postgres.WithTable("", "t")), false},
		"ThreeParts":     {postgres.New(&fakeDB{}, postgres.WithTable("a", "b", "c")), false},
		"NUL":            {postgres.New(&fakeDB{}, postgres.WithTable("a\x00")), false},
		"NotUTF8":        {postgres.New(&fakeDB{}, postgres.WithTable("a\xff")), false},
		"TooLong":        {postgres.New(&fakeDB{}, postgres.WithTable(long+"x")), false},
		"TooLongInBytes": {postgres.New(&fakeDB{}, postgres.WithTable(strings.Repeat("é", 29))), false},
		"SchemaTooLong":  {postgres.New(&fakeDB{}, postgres.WithTable(strings.Repeat("s", 64), "t")), false},
		"Longest":        {postgres.New(&fakeDB{}, postgres.WithTable(strings.Repeat("s", 63), long)), true},
		"Default":        {postgres.New(&fakeDB{}), true},
		"NilOption":      {postgres.New(&fakeDB{}, nil, postgres.WithoutWakeUps(), nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := locco.New(c.backend)
			var invalid *locco.ValidationError
			if c.ok != (err == nil) || err != nil && !errors.As(err, &invalid) {
				t.Errorf("locco.New = %v; want ok: %t, else a ValidationError", err, c.ok)
			}
		})
	}
}

// spec 8: New sends nothing, and a call that is refused before its time neither.
func TestNoIO(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	b := postgres.New(db)
	if _, err := b.SweepExpired(t.Context(), 0); !errors.Is(err, locco.ErrInvalid) {
		t.Errorf("SweepExpired(0) = %v; want ErrInvalid", err)
	}
	if vs := b.ExtendMany(t.Context(), nil); len(vs) != 0 {
		t.Errorf("ExtendMany of nothing = %v", vs)
	}
	if gs, at, err := b.AcquireMany(t.Context(), nil); len(gs) != 0 || at != -1 || err != nil {
		t.Errorf("AcquireMany of nothing = %v, %d, %v", gs, at, err)
	}
	r := postgres.NewResource("r", nil)
	for what, err := range map[string]error{
		"no fence":       r.Raise(t.Context(), db, 0),
		"negative fence": r.Raise(t.Context(), db, -1),
		"large fence":    r.Raise(t.Context(), db, 1<<53),
		"nil db":         r.Raise(t.Context(), nil, 1),
		"nil pool":       r.Raise(t.Context(), (*pgxpool.Pool)(nil), 1),
		"no name":        postgres.NewResource("").Raise(t.Context(), db, 1),
		"NUL":            postgres.NewResource("\x00").Raise(t.Context(), db, 1),
		"nil resource":   (*postgres.Resource)(nil).Raise(t.Context(), db, 1),
		"bad table":      postgres.NewResource("r", postgres.WithTable("")).Raise(t.Context(), db, 1),
		"nil beginner":   r.Guard(t.Context(), nil, 1, func(pgx.Tx) error { return nil }),
		"nil write":      r.Guard(t.Context(), (&pgxpool.Pool{}), 1, nil),
		"nil tx":         b.CheckTx(t.Context(), nil, nil),
	} {
		if !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", what, err)
		}
	}
	for name, b := range map[string]*postgres.Backend{"silent": postgres.New(db, postgres.WithoutWakeUps()), "without connections": b} {
		if _, _, err := b.Watch(t.Context(), "k"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: Watch = %v; want ErrUnsupported", name, err)
		}
	}
	if n := db.count(); n != 0 {
		t.Errorf("%d statements were sent; want none", n)
	}
}

// spec 8.3: the schema is looked at once, and what is sent has the names in quotes and a
// TTL of whole milliseconds that is never shorter than what was asked for.
func TestStatements(t *testing.T) {
	t.Parallel()
	db := &fakeDB{answer: func(sql string, _ []any) ([][]any, error) {
		if strings.Contains(sql, "INSERT") {
			return [][]any{{int64(42), false}}, nil
		}
		return nil, nil
	}}
	b := postgres.New(db, postgres.WithTable("S", `odd "{fence}" \'`))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	l := locco.Lease{Key: "k", Token: "t", TTL: time.Second + time.Nanosecond, Fenced: true}
	g, err := b.Acquire(ctx, l)
	if err != nil || g != (locco.Grant{OK: true, Fence: 42}) {
		t.Errorf("Acquire = %+v, %v; want fence 42", g, err)
	}
	first := db.count()
	sql, args := db.last().sql, db.last().args
	for _, part := range []string{
		`INSERT INTO "S"."odd ""{fence}"" \'"`,
		`RETURNING nextval( E'"S"."odd ""{fence}"" \\''_fence"'::regclass)`,
		"clock_timestamp()",
	} {
		if !strings.Contains(sql, part) {
			t.Errorf("the statement lacks %q:\n%s", part, sql)
		}
	}
	if strings.Contains(sql, "now()") || strings.Contains(sql, "--") {
		t.Errorf("the statement has now() or a comment:\n%s", sql)
	}
	if want := []any{"k", "t", int64(1001), false, "1000"}; !slices.Equal(args, want) {
		t.Errorf("arguments %v; want %v", args, want)
	}
	l.Fenced = false
	if g, err := b.Acquire(ctx, l); err != nil || g != (locco.Grant{OK: true}) {
		t.Errorf("Acquire = %+v, %v; want no fence", g, err)
	}
	if strings.Contains(db.last().sql, "nextval") {
		t.Error("an attempt without a fence draws one")
	}
	if n := db.count() - first; n != 1 {
		t.Errorf("%d statements for the second Acquire; want 1", n)
	}
	short, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, _ = b.Acquire(short, l)
	if wait := db.last().args[4].(string); len(wait) > 3 || wait > "200" {
		t.Errorf("the server may wait %s ms for a row; want half of 400 at most", wait)
	}

	unprepared := postgres.New(db, postgres.WithoutPreparedStatements())
	_, _ = unprepared.Extend(ctx, l)
	if mode := db.last().args[0]; mode != pgx.QueryExecModeExec {
		t.Errorf("the first argument is %v; want the mode that prepares nothing", mode)
	}
	_, _ = b.Release(ctx, "k", "t")
	if sql := db.last().sql; !strings.Contains(sql, "pg_notify") {
		t.Errorf("a release wakes nobody:\n%s", sql)
	}
	_, _ = postgres.New(db, postgres.WithoutWakeUps()).Release(ctx, "k", "t")
	if sql := db.last().sql; strings.Contains(sql, "pg_notify") || strings.Contains(sql, "advisory") {
		t.Errorf("a release of a silent backend:\n%s", sql)
	}
}

// spec 1.4, 8.3: what the answers mean.
func TestAnswers(t *testing.T) {
	t.Parallel()
	l := locco.Lease{Key: "k", Token: "t", TTL: time.Second, Fenced: true, WantLeft: true}
	answers := func(rows [][]any, err error) *postgres.Backend {
		return postgres.New(&fakeDB{answer: func(string, []any) ([][]any, error) { return rows, err }})
	}
	for name, c := range map[string]struct {
		rows [][]any
		want locco.Grant
	}{
		"Granted": {[][]any{{int64(7), false}}, locco.Grant{OK: true, Fence: 7}},
		"Refused": {[][]any{{int64(-250), false}}, locco.Grant{Left: 250 * time.Millisecond}},
	} {
		if g, err := answers(c.rows, nil).Acquire(t.Context(), l); g != c.want || err != nil {
			t.Errorf("%s: Acquire = %+v, %v; want %+v", name, g, err, c.want)
		}
	}
	faster := answers(nil, nil)
	if g, err := faster.Acquire(t.Context(), l); g != (locco.Grant{}) || !faster.Retryable(err) {
		t.Errorf("Acquire of a key for which others are faster each time = %+v, %v; want an error that is Retryable", g, err)
	}
	noLeft := l
	noLeft.WantLeft = false
	if g, _ := answers([][]any{{int64(-250), false}}, nil).Acquire(t.Context(), noLeft); g != (locco.Grant{}) {
		t.Errorf("Acquire = %+v; want nothing about what is left", g)
	}
	if g, err := answers(nil, nil).Transfer(t.Context(), "f", l); g != (locco.Grant{}) || err != nil {
		t.Errorf("Transfer = %+v, %v; want a refusal", g, err)
	}
	for _, live := range []bool{true, false} {
		if ok, err := answers([][]any{{live}}, nil).Release(t.Context(), "k", "t"); ok != live || err != nil {
			t.Errorf("Release = %v, %v; want %v", ok, err, live)
		}
	}
	if _, err := answers([][]any{{true, true}}, nil).Holds(t.Context(), "k", "t"); err == nil || errors.Is(err, locco.ErrInvalid) {
		t.Errorf("Holds on a standby = %v; want an error", err)
	}
	if gs, at, err := answers([][]any{{2, nil, false, int64(1)}}, nil).AcquireMany(t.Context(), []locco.Lease{l, l}); gs != nil || at != 1 || err != nil {
		t.Errorf("AcquireMany = %v, %d, %v; want the second key refused", gs, at, err)
	}
	gs, at, err := answers([][]any{{nil, []int64{5, 6}, false, int64(1)}}, nil).AcquireMany(t.Context(), []locco.Lease{l, l})
	if len(gs) != 2 || gs[1].Fence != 6 || at != -1 || err != nil {
		t.Errorf("AcquireMany = %v, %d, %v; want fences 5 and 6", gs, at, err)
	}
	vs := answers([][]any{{2, false}}, nil).ExtendMany(t.Context(), []locco.Lease{l, l})
	if vs[0].OK || vs[0].Err != nil || !vs[1].OK {
		t.Errorf("ExtendMany = %+v; want the second alone", vs)
	}

	// A commit that should have waited for a standby, on something that cannot be asked
	// whether it did: no grant, no extension.
	b := answers([][]any{{int64(7), true}}, nil)
	if g, err := b.Acquire(t.Context(), l); g.OK || err == nil || !b.Retryable(err) {
		t.Errorf("Acquire whose commit is in doubt = %+v, %v; want an error that is Retryable", g, err)
	}
	if g, err := b.Acquire(t.Context(), l); g.OK || !errors.Is(err, locco.ErrInvalid) {
		t.Errorf("the next Acquire = %+v, %v; want ErrInvalid", g, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b = postgres.New(&fakeDB{answer: func(string, []any) ([][]any, error) { cancel(); return [][]any{{true}}, nil }})
	if ok, err := b.Extend(ctx, l); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("Extend whose context ended in a commit for a standby = %v, %v; want the context's error", ok, err)
	}
}

// spec 2.6: a set of which somebody else took a key at the same moment is tried again,
// and is an error that passes by itself in the end.
func TestAcquireManyRaced(t *testing.T) {
	t.Parallel()
	l := []locco.Lease{{Key: "k", Token: "t", TTL: time.Second}}
	tries := 0
	b := postgres.New(&fakeDB{answer: func(string, []any) ([][]any, error) {
		if tries++; tries < 3 {
			return nil, serverError("22012")
		}
		return [][]any{{1, nil, false, int64(1)}}, nil
	}})
	if _, at, err := b.AcquireMany(t.Context(), l); at != 0 || err != nil || tries != 3 {
		t.Errorf("AcquireMany = %d, %v after %d tries; want a refusal at the third", at, err, tries)
	}
	b = postgres.New(&fakeDB{answer: func(string, []any) ([][]any, error) { return nil, serverError("22012") }})
	if _, _, err := b.AcquireMany(t.Context(), l); err == nil || !b.Retryable(err) {
		t.Errorf("AcquireMany = %v; want an error that is Retryable", err)
	}
}

// spec 8.5: a row that another transaction holds does not hold up the others.
func TestExtendManyLockedRow(t *testing.T) {
	t.Parallel()
	n := 0
	b := postgres.New(&fakeDB{answer: func(string, []any) ([][]any, error) {
		if n++; n == 1 {
			return nil, serverError("55P03")
		}
		return [][]any{{2, true, false}, {1, false, false}}, nil
	}})
	l := locco.Lease{Key: "k", Token: "t", TTL: time.Second}
	vs := b.ExtendMany(t.Context(), []locco.Lease{l, l, l})
	if vs[0].OK || vs[0].Err == nil || !b.Retryable(vs[0].Err) || !vs[1].OK || vs[2] != (locco.Verdict{}) {
		t.Errorf("ExtendMany = %+v; want an error that is Retryable, an extension, a refusal", vs)
	}
}

// spec 1.9: errors of a database that is set up wrong are validation errors that wrap the
// server's; all others are returned as they are. After one of the former the schema is
// looked at again.
func TestErrors(t *testing.T) {
	t.Parallel()
	for code, invalid := range map[string]bool{
		"42501": true, "42P01": true, "42703": true, "3F000": true, "42P10": true, "42809": true, "42804": true, "42883": true,
		"26000": true, "42P05": true,
		"40001": false, "53300": false, "57P01": false, "55P03": false, "XX000": false, "53200": false, "22012": false,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			db := &fakeDB{answer: func(string, []any) ([][]any, error) { return nil, serverError(code) }}
			b := postgres.New(db)
			l := locco.Lease{Key: "k", Token: "t", TTL: time.Second}
			for what, call := range map[string]func() error{
				"Acquire":  func() error { _, err := b.Acquire(t.Context(), l); return err },
				"Extend":   func() error { _, err := b.Extend(t.Context(), l); return err },
				"Release":  func() error { _, err := b.Release(t.Context(), "k", "t"); return err },
				"Holds":    func() error { _, err := b.Holds(t.Context(), "k", "t"); return err },
				"Transfer": func() error { _, err := b.Transfer(t.Context(), "f", l); return err },
				"Sweep":    func() error { _, err := b.SweepExpired(t.Context(), 1); return err },
				"Extends":  func() error { return b.ExtendMany(t.Context(), []locco.Lease{l})[0].Err },
			} {
				err := call()
				var e *pgconn.PgError
				if !errors.As(err, &e) || e.Code != code || errors.Is(err, locco.ErrInvalid) != invalid {
					t.Errorf("%s = %v; want the server's error, in a ValidationError: %t", what, err, invalid)
				}
			}
			if invalid && code[0] == '4' && code != "42P05" {
				before := db.count()
				_, _ = b.Extend(t.Context(), l)
				if n := db.count() - before; n < 2 {
					t.Errorf("%d statements after such an error; want a look at the schema again", n)
				}
			}
		})
	}
}

type timeoutError struct{ error }

func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return false }

// spec 3.7: which errors pass by themselves.
func TestRetryable(t *testing.T) {
	t.Parallel()
	b := postgres.New(&fakeDB{})
	for _, code := range []string{
		"40001", "40P01", "40003", "08006", "08P01", "55P03", "25006", "57P01", "57P02", "57P03", "57P05", "57014", "53300",
	} {
		if !b.Retryable(fmt.Errorf("wrapped: %w", serverError(code))) {
			t.Errorf("Retryable(%s) = false; want true", code)
		}
	}
	for _, code := range []string{"28P01", "3D000", "42501", "42P01", "22012", "23505", "XX000", "XX001", "53100", "53200", "57P04", "0A000"} {
		if b.Retryable(serverError(code)) {
			t.Errorf("Retryable(%s) = true; want false", code)
		}
	}
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
		timeoutError{errors.New("i/o timeout")},
		&net.OpError{Op: "dial", Err: errors.New("no route")},
	} {
		if !b.Retryable(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("Retryable(%v) = false; want true", err)
		}
	}
	for _, err := range []error{
		nil, errors.New("something"), context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported, pgx.ErrNoRows,
		&locco.ValidationError{Field: "x", Err: serverError("40001")},
	} {
		if b.Retryable(err) {
			t.Errorf("Retryable(%v) = true; want false", err)
		}
	}
}

// spec 1.9: those who come while the schema is looked at wait for that look, and none of
// them longer than its context.
func TestFirstUseWaits(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	db := &holdingDB{hold: hold, began: make(chan struct{})}
	b := postgres.New(db)
	l := locco.Lease{Key: "k", Token: "t", TTL: time.Second}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = b.Extend(t.Context(), l) })
	<-db.began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Extend(ctx, l); !errors.Is(err, context.Canceled) {
		t.Errorf("Extend = %v; want %v", err, context.Canceled)
	}
	close(hold)
	wg.Wait()
	if _, err := b.Extend(t.Context(), l); err != nil {
		t.Errorf("Extend = %v", err)
	}
}

// holdingDB holds up the first statement.
type holdingDB struct {
	fakeDB
	once        sync.Once
	hold, began chan struct{}
}

func (h *holdingDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	h.once.Do(func() { close(h.began); <-h.hold })
	return h.fakeDB.QueryRow(ctx, sql, args...)
}
