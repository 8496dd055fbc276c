package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	locco "github.com/locco-go/locco/core"
)

// The SQLSTATEs that we look for.
const (
	divisionByZero        = "22012"
	uniqueViolation       = "23505"
	noSuchStatement       = "26000"
	invalidSchema         = "3F000"
	insufficientPrivilege = "42501"
	undefinedColumn       = "42703"
	datatypeMismatch      = "42804"
	undefinedFunction     = "42883"
	undefinedTable        = "42P01"
	duplicateStatement    = "42P05"
	duplicateTable        = "42P07"
	duplicateObject       = "42710"
	noUniqueKey           = "42P10"
	wrongObjectType       = "42809"
	lockNotAvailable      = "55P03"
	readOnlyTransaction   = "25006"
	adminShutdown         = "57P01"
	crashShutdown         = "57P02"
	cannotConnectNow      = "57P03"
	idleSessionTimeout    = "57P05"
	queryCanceled         = "57014"
	tooManyConnections    = "53300"
	transactionTimeout    = "25P04"
)

// errStandby is like what the server says to a write there.
var errStandby = &pgconn.PgError{
	Severity: "ERROR", Code: readOnlyTransaction,
	Message: "locco: this server is a standby and does not know who holds a key",
}

// explain turns errors about a database that is set up wrong into validation errors
// that say what is missing (spec 1.9), and makes the next call look at the schema.
func (b *Backend) explain(err error) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	invalid := func(rule string) error {
		b.table.Store(false)
		b.fences.Store(false)
		return &locco.ValidationError{Field: "postgres table", Value: b.config.table.quoted(), Rule: rule, Err: err}
	}
	switch e.Code {
	case insufficientPrivilege:
		return invalid(needs(b.config.table))
	case undefinedTable, undefinedColumn, invalidSchema, noUniqueKey, wrongObjectType, datatypeMismatch, undefinedFunction:
		return invalid("must be the table of locks, with its sequence: see loccoddl postgres")
	case noSuchStatement, duplicateStatement:
		return &locco.ValidationError{
			Field: "postgres db", Rule: "must keep prepared statements from call to call; behind a pooler that does not, " +
				"use postgres.WithoutPreparedStatements", Err: err,
		}
	}
	return err
}

// needs says which rights a role must have.
func needs(t table) string {
	return "the role needs SELECT, INSERT, UPDATE and DELETE on the table, USAGE on the sequence " + t.fence() +
		" and USAGE on the schema: loccoddl postgres -role=NAME prints the statements"
}

// Retryable implements [locco.Retryer]: what a failover, a restart, a broken connection,
// a deadlock, a serialization failure or the lock of another transaction bring.
func (*Backend) Retryable(err error) bool {
	if err == nil || errors.Is(err, locco.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if errors.Is(err, errUnconfirmed) || errors.Is(err, errRaced) || errors.Is(err, errLocked) {
		return true
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case lockNotAvailable, readOnlyTransaction, adminShutdown, crashShutdown, cannotConnectNow, idleSessionTimeout,
			queryCanceled, transactionTimeout, tooManyConnections:
			return true
		}
		return strings.HasPrefix(e.Code, "40") || strings.HasPrefix(e.Code, "08") // rolled back, connection
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, broken := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
	} {
		if errors.Is(err, broken) {
			return true
		}
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}
