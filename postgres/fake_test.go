package postgres_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fakeDB answers statements without a server. It keeps what it was asked.
type fakeDB struct {
	// answer is asked for every statement but those that look at the schema, which is
	// as it should be.
	answer func(sql string, args []any) (rows [][]any, err error)

	mu    sync.Mutex // guards asked
	asked []asked
}

// soundSchema is what look.sql answers of a schema that is as it should be.
const soundSchema = `{
	"table": {"oid": 1, "schema": "public", "kind": "r", "persistence": "p", "usage": true, "unique": ["key"],
		"rights": ["SELECT", "INSERT", "UPDATE", "DELETE"],
		"columns": [{"name": "key", "type": "text", "not_null": true}, {"name": "token", "type": "text", "not_null": true},
			{"name": "expires_at", "type": "timestamp with time zone", "not_null": true}]},
	"sequence": {"oid": 2, "schema": "public", "kind": "S", "persistence": "p", "usage": true, "rights": ["USAGE"],
		"sequence": {"type": "bigint", "increment": 1, "cache": 1, "cycle": false, "minimum": 1, "maximum": 9007199254740991}}
}`

type asked struct {
	sql  string
	args []any
}

func (f *fakeDB) do(sql string, args []any) ([][]any, error) {
	f.mu.Lock()
	f.asked = append(f.asked, asked{sql, args})
	f.mu.Unlock()
	switch {
	case strings.HasPrefix(sql, "WITH want (what, name)"): // look.sql
		return [][]any{{soundSchema}}, nil
	case strings.HasPrefix(sql, "SELECT current_setting"):
		return [][]any{{false}}, nil
	case f.answer == nil:
		return nil, nil
	}
	return f.answer(sql, args)
}

// last is the last statement.
func (f *fakeDB) last() asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1]
}

func (f *fakeDB) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func (f *fakeDB) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	_, err := f.do(sql, args)
	return pgconn.CommandTag{}, err
}

func (f *fakeDB) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := f.do(sql, args)
	return &fakeRows{rows: rows, err: err}, nil
}

func (f *fakeDB) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	rows, err := f.do(sql, args)
	return &fakeRows{rows: rows, err: err, one: true}
}

// fakeRows is an answer. Of pgx.Rows it has what is used.
type fakeRows struct {
	pgx.Rows
	rows [][]any
	err  error
	at   int
	one  bool
}

func (r *fakeRows) Next() bool { r.at++; return r.err == nil && r.at <= len(r.rows) }
func (r *fakeRows) Err() error { return r.err }
func (*fakeRows) Close()       {}

func (r *fakeRows) Scan(into ...any) error {
	if r.one && !r.Next() {
		if r.err == nil {
			return pgx.ErrNoRows
		}
		return r.err
	}
	row := r.rows[r.at-1]
	if len(row) != len(into) {
		return fmt.Errorf("%d columns into %d", len(row), len(into))
	}
	for i, v := range row {
		to := reflect.ValueOf(into[i]).Elem()
		switch {
		case v == nil:
			to.SetZero()
		case to.Kind() == reflect.Pointer:
			to.Set(reflect.New(to.Type().Elem()))
			to.Elem().Set(reflect.ValueOf(v))
		default:
			to.Set(reflect.ValueOf(v))
		}
	}
	return nil
}

func serverError(code string) error {
	return &pgconn.PgError{Severity: "ERROR", Code: code, Message: "of the server"}
}
