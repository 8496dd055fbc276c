// Command loccoddl prints what locco needs in a database, in the formats of migration
// tools, and checks a database that exists.
//
//	loccoddl postgres -role=app -format=goose -version=20260102150405 -o migrations
//	loccoddl check -url=postgres://localhost/app -role=app
//
// The exit code is 0 if all is well, 1 if the check found something, 2 for wrong usage,
// and 3 if the database cannot be reached or read.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
