package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// ReplicationError says that a write was not confirmed in time as [WithReplication] or
// [WithDurability] asks for. The write itself was done.
type ReplicationError struct {
	Wanted       int // replicas
	Acknowledged int

	// Unsynced says that the primary itself has not written it to its append-only
	// file, with WithDurability.
	Unsynced bool
}

func (e *ReplicationError) Error() string {
	text := fmt.Sprintf("locco: %d replicas have acknowledged the write; want %d", e.Acknowledged, e.Wanted)
	if e.Unsynced {
		text += "; and the primary has not written it to its append-only file"
	}
	return text
}

// errUnsure is the answer of a write that the driver has sent twice: what is refused is
// our own grant. It passes by itself, since the next attempt knows its token.
var errUnsure = errors.New("locco: the key has our token already: the driver sent the request twice")

// needs says what the user of the connection must be allowed to do.
const needs = "the user needs +evalsha +eval +set +get +del +pexpire +pttl +time, to publish and " +
	"subscribe the channels of the keys (+publish +subscribe +unsubscribe, on a Cluster +spublish +ssubscribe +sunsubscribe) " +
	"unless WithoutWakeUps is given, +wait for WithReplication, +waitaof for WithDurability, and the keys with those of their fences"

// explain adds to an error about missing rights what is needed. The scripts meet it
// before they have written anything, so it is a validation error (spec 1.9).
func explain(err error) error {
	text, ok := serverText(err)
	if !ok {
		return err
	}
	if strings.HasPrefix(text, protocol.OwnToken) {
		return errUnsure
	}
	if strings.HasPrefix(text, "NOPERM") ||
		strings.Contains(text, "The user executing the script can't") || // in a script, Redis 7.0
		strings.Contains(text, "ACL failure in script") { // later ones
		return &locco.ValidationError{Field: "redis user", Value: "ACL", Rule: needs, Err: err}
	}
	return err
}

// isIncapable tells whether a server answers that it has no such command, or no
// append-only file.
func isIncapable(err error) bool {
	e, ok := redisError(err)
	return ok && (strings.HasPrefix(e.Error(), "unknown command") || strings.Contains(e.Error(), "appendonly is disabled"))
}

// passing are the first words of the errors of a server that pass by themselves.
var passing = []string{
	"LOADING",     // it starts
	"READONLY",    // it has become a replica
	"MASTERDOWN",  // it is a replica without a primary
	"CLUSTERDOWN", // slots are not served
	"TRYAGAIN",    // a slot moves
	"MOVED",
	"ASK",
	"REDIRECT",
	"NOREPLICAS", // too few of them for its configuration
	"BUSY",       // a script runs for too long
	"UNBLOCKED",  // it has become a replica while the command waited
}

// Retryable implements [locco.Retryer]: what a failover, a restart, a moving slot
// or a broken connection bring.
func (b *Backend) Retryable(err error) bool {
	if err == nil || errors.Is(err, locco.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if errors.Is(err, errUnsure) {
		return true
	}
	if text, ok := serverText(err); ok {
		word, _, _ := strings.Cut(text, " ")
		return slices.Contains(passing, word) ||
			strings.HasPrefix(text, "max number of clients") || // the driver cuts "ERR" off
			strings.Contains(text, "-READONLY ") || // in a script, Redis 6.2
			strings.Contains(text, "cannot be used with replica instances") // WAIT, where it has become one
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, broken := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
		rueidis.ErrNoAddr, rueidis.ErrNoSlot,
	} {
		if errors.Is(err, broken) {
			return true
		}
	}
	// A client of Sentinels or of a Cluster closes connections itself, and what is on
	// one then fails as if the caller had closed the client.
	if errors.Is(err, rueidis.ErrClosing) {
		return b != nil && b.client != nil && b.client.Mode() != rueidis.ClientModeStandalone
	}
	var network net.Error
	return errors.As(err, &network)
}

// redisError finds the answer of the server in err.
func redisError(err error) (*rueidis.RedisError, bool) {
	if err == nil {
		return nil, false
	}
	var e *rueidis.RedisError
	ok := errors.As(err, &e)
	return e, ok
}

// serverText finds what the server says in err, whether it answered a command by an
// error or gave it as what a script has met at one key.
func serverText(err error) (string, bool) {
	if e, ok := redisError(err); ok {
		return e.Error(), true
	}
	if e, ok := errors.AsType[*scriptError](err); ok {
		return e.text, true
	}
	return "", false
}

// isWrongType tells whether the key has a value that is no string.
func isWrongType(err error) bool {
	e, ok := redisError(err)
	return ok && strings.Contains(e.Error(), "WRONGTYPE")
}

// isSyntax tells whether the server does not know an option of the command.
func isSyntax(err error) bool {
	e, ok := redisError(err)
	return ok && strings.HasPrefix(e.Error(), "syntax error") // the driver cuts "ERR" off
}

func isNoScript(err error) bool {
	e, ok := redisError(err)
	return ok && e.IsNoScript()
}
