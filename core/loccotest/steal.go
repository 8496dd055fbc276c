package loccotest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	locco "github.com/locco-go/locco/core"
)

// callTimeout bounds what Steal and Free do, because the context of a backend's
// call always has a deadline.
const callTimeout = 10 * time.Second

// Steal gives key to a token that nobody knows, for ttl, whoever has it now: as
// if its lease had ended early and another process had come first. The holder
// finds out at its next call. When ttl has passed the key is free again, or at
// once by [Backend.Free]. Faults do not concern Steal, and it is not counted.
//
// It fails with a driver's error, and if the key is held by a token that has not
// passed through b. It is one atomic step only if the wrapped backend is a
// [locco.Transferrer]; else the key is free for a moment.
func (b *Backend) Steal(ctx context.Context, key string, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	thief := locco.Lease{Key: key, Token: newToken(), TTL: ttl}
	// A holder may come in between, and be known by the next turn.
	for range 10 {
		for _, holder := range b.holders(key) {
			if took, err := b.wrest(ctx, holder, thief); took || err != nil {
				return err
			}
		}
		if grant, err := b.acquire(ctx, thief); grant.OK || err != nil {
			return err
		}
	}
	return fmt.Errorf("loccotest: %q is held by a token that did not pass through this backend", key)
}

// wrest takes the key from holder. It tells whether the thief has it then.
func (b *Backend) wrest(ctx context.Context, holder string, thief locco.Lease) (bool, error) {
	if b.transferrer != nil {
		grant, err := b.transferrer.Transfer(ctx, holder, thief)
		if !errors.Is(err, errors.ErrUnsupported) {
			b.answered(grant.OK, err, thief)
			return grant.OK, err
		}
	}
	_, err := b.inner.Release(ctx, thief.Key, holder)
	return false, err
}

// Free frees key, whoever has it now: as if the server had been flushed. The
// holder finds out at its next call. It does nothing if no token that has passed
// through b has the key. Whoever waits for the key may be woken by it. Faults do
// not concern Free, and it is not counted.
func (b *Backend) Free(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, holder := range b.holders(key) {
		ours, err := b.inner.Release(ctx, key, holder)
		if err != nil {
			return err
		}
		if ours {
			b.found(key, holder, false, nil)
		}
	}
	return nil
}

// tokens has, for each key, the tokens that may be stored.
type tokens map[string][]string

// holders returns the tokens that may have key.
func (b *Backend) holders(key string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tokens[key])
}

// sent remembers the tokens of an attempt: whatever comes of it, they may be
// stored from now on.
func (b *Backend) sent(ls ...locco.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range ls {
		b.tokens.add(l.Key, l.Token)
	}
}

// answered takes in the answer to an attempt. After a driver's error the tokens
// may be stored or not.
func (b *Backend) answered(granted bool, err error, ls ...locco.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range ls {
		switch {
		case err == nil && granted:
			b.tokens[l.Key] = []string{l.Token} // all others are over
		case err == nil, errors.Is(err, errors.ErrUnsupported), errors.Is(err, locco.ErrInvalid):
			b.tokens.remove(l.Key, l.Token)
		default:
			b.tokens.add(l.Key, l.Token)
		}
	}
}

// found takes in whether token has key now. The token may be new to b: a lock
// can be attached.
func (b *Backend) found(key, token string, ours bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
	case ours:
		b.tokens.add(key, token)
	default:
		b.tokens.remove(key, token)
	}
}

func (t tokens) add(key, token string) {
	if !slices.Contains(t[key], token) {
		t[key] = append(t[key], token)
	}
}

func (t tokens) remove(key, token string) {
	t[key] = slices.DeleteFunc(t[key], func(s string) bool { return s == token })
	if len(t[key]) == 0 {
		delete(t, key)
	}
}

// newToken returns a token like those of a Locker.
func newToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
