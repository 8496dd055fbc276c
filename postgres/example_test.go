package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}

	locker, err := locco.New(postgres.New(pool), locco.WithFencing())
	if err != nil {
		log.Fatal(err)
	}
	err = locker.WithLock(ctx, "report:2026", 30*time.Second,
		func(ctx context.Context, lock *locco.Lock) error {
			return buildReport(ctx, lock.Fence()) // ctx ends if the lock is lost
		})
	if errors.Is(err, locco.ErrHeld) {
		fmt.Println("somebody else is building the report")
	} else if err != nil {
		log.Fatal(err)
	}
}

// Data in the database of the locks: the last word before the commit is whether the lock
// is still ours.
func ExampleBackend_CheckTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	backend := postgres.New(pool)
	locker, err := locco.New(backend)
	if err != nil {
		log.Fatal(err)
	}

	err = locker.WithLock(ctx, "account:42", 30*time.Second, func(ctx context.Context, lock *locco.Lock) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", 17, 42); err != nil {
				return err
			}
			return backend.CheckTx(ctx, tx, lock) // an error rolls back
		})
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Data in another database than the locks, or locks in another store: the resource
// refuses what comes from an earlier holder.
func ExampleResource_Guard() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	locker, err := locco.New(postgres.New(pool), locco.WithFencing())
	if err != nil {
		log.Fatal(err)
	}
	account := postgres.NewResource("account:42")

	err = locker.WithLock(ctx, "account:42", 30*time.Second, func(ctx context.Context, lock *locco.Lock) error {
		// Before the first read, so that no earlier holder changes what is read.
		if err := account.Raise(ctx, pool, lock.Fence()); err != nil {
			return err
		}
		var balance int64
		if err := pool.QueryRow(ctx, "SELECT balance FROM account WHERE id = $1", 42).Scan(&balance); err != nil {
			return err
		}
		return account.Guard(ctx, pool, lock.Fence(), func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE account SET balance = $1 WHERE id = $2", balance-17, 42)
			return err
		})
	})
	if errors.Is(err, postgres.ErrStale) {
		fmt.Println("another holder has the account by now")
	} else if err != nil {
		log.Fatal(err)
	}
}

func buildReport(context.Context, int64) error { return nil }
