package mongo

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/mongo"

	locco "github.com/locco-go/locco/core"
)

// The codes of the server's errors that we look for.
const (
	codeUnauthorized          = 13
	codeNamespaceNotFound     = 26
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
	codeDeadlock              = 16908292 // DocumentDB's for the SQLSTATE 40P01
)

// passing are those that pass by themselves: what the driver specifications call
// retryable, and conflicts.
var passing = []int{
	6,     // HostUnreachable
	7,     // HostNotFound
	64,    // WriteConcernTimeout
	89,    // NetworkTimeout
	91,    // ShutdownInProgress
	112,   // WriteConflict
	134,   // ReadConcernMajorityNotAvailableYet
	189,   // PrimarySteppedDown
	262,   // ExceededTimeLimit
	9001,  // SocketException
	10107, // NotWritablePrimary
	11000, // DuplicateKey: somebody inserts the same key, again and again
	11600, // InterruptedAtShutdown
	11602, // InterruptedDueToReplStateChange
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary

	codeDeadlock,
}

// needs says what the user of the client must be allowed to do.
func (b *Backend) needs() string {
	return "the user needs find, insert, update and remove on the collections " + b.locks.Name() + " and " + b.fences.Name() +
		", listIndexes on the first, and createIndex on it unless mongo.WithoutSetUp is given; or the role readWrite of the database"
}

// explain turns a missing right into a validation error that says what is needed (spec
// 1.9). The server checks rights before it does anything.
func (b *Backend) explain(err error) error {
	if hasCode(err, codeUnauthorized) {
		b.indexed.Store(false)
		b.drawn.Store(false)
		return &locco.ValidationError{Field: "mongo user", Value: b.locks.Database().Name(), Rule: b.needs(), Err: err}
	}
	return err
}

// inTheWay tells whether the server has undone a command because of another one.
func inTheWay(err error) bool {
	var server mongo.ServerError
	return mongo.IsDuplicateKeyError(err) || hasCode(err, codeDeadlock) ||
		errors.As(err, &server) && server.HasErrorCodeWithMessage(1, "deadlock detected")
}

func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	return slices.ContainsFunc(server.ErrorCodes(), func(code int) bool { return slices.Contains(codes, code) })
}

// Retryable implements [locco.Retryer]: what a failover, a restart, a broken connection or
// a conflict of writes brings.
func (*Backend) Retryable(err error) bool {
	if err == nil || errors.Is(err, locco.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if hasCode(err, passing...) || inTheWay(err) || mongo.IsNetworkError(err) {
		return true
	}
	var labeled mongo.LabeledError
	if errors.As(err, &labeled) && (labeled.HasErrorLabel("RetryableWriteError") || labeled.HasErrorLabel("TransientTransactionError")) {
		return true
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return false
	}
	if strings.Contains(err.Error(), "server selection error") { // no server, for now
		return true
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
	var network net.Error
	return errors.As(err, &network)
}
