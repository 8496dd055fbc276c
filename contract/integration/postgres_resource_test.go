package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// spec 6.5: a resource refuses a fence that is smaller than one it has seen; an equal one
// passes; what a refused or failed write did is undone.
func TestPostgresGuard(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		r := postgres.NewResource("account")
		nothing := func(pgx.Tx) error { return nil }
		wantSetUp(t, "Guard without the table of marks", r.Guard(t.Context(), pool, 1, nothing), "-marks")
		execute(t, pool, "CREATE TABLE locco_locks_marks (name text PRIMARY KEY, fence bigint NOT NULL)",
			"CREATE TABLE balance (amount int)", "INSERT INTO balance VALUES (0)")
		write := func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE balance SET amount = amount + 1")
			return err
		}
		wantAmount := func(want int) {
			t.Helper()
			if amount := scanned[int](t, pool, "SELECT amount FROM balance"); amount != want {
				t.Errorf("the balance is %d; want %d", amount, want)
			}
		}
		passes := func(fence int64) {
			t.Helper()
			if err := r.Guard(t.Context(), pool, fence, write); err != nil {
				t.Errorf("Guard with fence %d = %v; want nil", fence, err)
			}
		}
		stale := func(what string, err error, fence, seen int64) {
			t.Helper()
			var s *postgres.StaleError
			if !errors.Is(err, postgres.ErrStale) || !errors.As(err, &s) || *s != (postgres.StaleError{Resource: "account", Fence: fence, Seen: seen}) {
				t.Errorf("%s = %v; want StaleError of fence %d, seen %d", what, err, fence, seen)
			}
		}
		passes(5)
		passes(5)
		wantAmount(2)
		stale("Guard", r.Guard(t.Context(), pool, 4, write), 4, 5)
		stale("Raise", r.Raise(t.Context(), pool, 4), 4, 5)
		wantAmount(2)
		if err := r.Raise(t.Context(), pool, 9); err != nil {
			t.Errorf("Raise = %v", err)
		}
		stale("Guard", r.Guard(t.Context(), pool, 8, write), 8, 9)
		if err := postgres.NewResource("other").Raise(t.Context(), pool, 1); err != nil {
			t.Errorf("Raise of another resource = %v; want nil", err)
		}
		failure := errors.New("no")
		err := r.Guard(t.Context(), pool, 20, func(tx pgx.Tx) error { return errors.Join(write(tx), failure) })
		if !errors.Is(err, failure) {
			t.Errorf("Guard = %v; want the error of the write", err)
		}
		wantAmount(2)
		passes(9) // the claim of the write that failed is undone
		tx := begin(t, url)
		if err := r.Raise(t.Context(), tx, 30); err != nil {
			t.Errorf("Raise in a transaction = %v", err)
		}
		_ = tx.Rollback(t.Context())
		passes(10)

		// A write holds up whoever claims the resource meanwhile.
		inside, leave := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Guard(t.Context(), pool, 11, func(tx pgx.Tx) error {
				close(inside)
				<-leave
				return write(tx)
			}); err != nil {
				t.Errorf("Guard = %v", err)
			}
		})
		<-inside
		later := make(chan error, 1)
		wg.Go(func() { later <- r.Raise(t.Context(), pool, 12) })
		soon(t, "the later holder waits for the write", func() bool { return blocked(t, pool) == 1 })
		close(leave)
		if err := <-later; err != nil {
			t.Errorf("Raise after the write = %v", err)
		}
		wg.Wait()
		stale("Guard by the earlier holder", r.Guard(t.Context(), pool, 11, write), 11, 12)

		// Many at a time: the mark never falls.
		for i := range 20 {
			wg.Go(func() {
				fence := int64(100 + i)
				err := r.Guard(t.Context(), pool, fence, func(tx pgx.Tx) error {
					var mark int64
					if err := tx.QueryRow(t.Context(), "SELECT fence FROM locco_locks_marks WHERE name = 'account'").Scan(&mark); err != nil {
						return err
					}
					if mark != fence {
						t.Errorf("the mark is %d during the write of %d", mark, fence)
					}
					return nil
				})
				if err != nil && !errors.Is(err, postgres.ErrStale) {
					t.Errorf("Guard = %v", err)
				}
			})
		}
		wg.Wait()
		if mark := scanned[int64](t, pool, "SELECT fence FROM locco_locks_marks WHERE name = 'account'"); mark != 119 {
			t.Errorf("the mark is %d; want the highest, 119", mark)
		}
	})
}

// spec 6.5: the check inside the caller's transaction: once it has passed nobody else is
// granted the key before the commit, even if the lease ends before that.
func TestPostgresCheckTx(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		b := postgres.New(pool)
		l := newLocker(t, b, locco.WithFencing())
		other := newLocker(t, postgres.New(integration.Pool(t, url)), locco.WithFencing())
		execute(t, pool, "CREATE TABLE work (by bigint)")
		lock := take(t, l, "k", 1500*time.Millisecond)
		tx := begin(t, url)
		if err := b.CheckTx(t.Context(), tx, lock); err != nil {
			t.Fatalf("CheckTx of a held lock = %v", err)
		}
		waiter := await(t, other, "k", time.Minute)
		ended(t, pool, "k")
		// The lease has ended. The waiter's attempts give up on the row again and again.
		soon(t, "the waiter waits for the transaction", func() bool { return blocked(t, pool) > 0 })
		execute(t, tx, fmt.Sprintf("INSERT INTO work VALUES (%d)", lock.Fence()))
		select {
		case r := <-waiter:
			t.Errorf("the waiter has %v, %v before the commit; want it to wait", r.lock, r.err)
		default:
		}
		if n := scanned[int](t, pool, "SELECT count(*) FROM work"); n != 0 {
			t.Errorf("%d rows before the commit", n)
		}
		commit(t, tx)
		next := got(t, waiter)
		if n := scanned[int](t, pool, "SELECT count(*) FROM work WHERE by < $1", next.Fence()); n != 1 {
			t.Errorf("the next holder sees %d rows of work by the earlier one; want 1", n)
		}

		// Another's, gone, ended: lost, whatever the holder believes.
		believed := take(t, l, "stolen", time.Hour)
		lost := func(what string) {
			t.Helper()
			tx := begin(t, url)
			err := b.CheckTx(t.Context(), tx, believed)
			if !errors.Is(err, locco.ErrLost) {
				t.Errorf("CheckTx of %s = %v; want ErrLost", what, err)
			}
			_ = tx.Rollback(t.Context())
		}
		execute(t, pool, "UPDATE locco_locks SET expires_at = now() - interval '1 s' WHERE key = 'stolen'")
		lost("a lease that has ended")
		execute(t, pool, "UPDATE locco_locks SET token = 'x', expires_at = now() + interval '1 h' WHERE key = 'stolen'")
		lost("another's key")
		execute(t, pool, "DELETE FROM locco_locks WHERE key = 'stolen'")
		lost("a key that is gone")
		tx = begin(t, url)
		release(t, next)
		if err := b.CheckTx(t.Context(), tx, next); !errors.Is(err, locco.ErrReleased) {
			t.Errorf("CheckTx of a released lock = %v; want ErrReleased", err)
		}
		if err := b.CheckTx(context.Background(), tx, nil); err == nil {
			t.Error("CheckTx of a nil lock = nil")
		}

		// A lease that ends while the transaction waits for the row is not taken for ours.
		again := take(t, l, "k", time.Hour)
		takeover := begin(t, url)
		execute(t, takeover, "UPDATE locco_locks SET token = 'x' WHERE key = 'k'")
		checked := make(chan error, 1)
		late := begin(t, url)
		go func() { checked <- b.CheckTx(t.Context(), late, again) }()
		soon(t, "the check waits for the row", func() bool { return blocked(t, pool) > 0 })
		commit(t, takeover)
		if err := <-checked; !errors.Is(err, locco.ErrLost) {
			t.Errorf("CheckTx after a takeover it waited for = %v; want ErrLost", err)
		}
	})
}
