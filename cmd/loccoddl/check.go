package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/locco-go/locco/postgres"
)

type checkCommand struct {
	schemaFlags `embed:""`

	URL     string        `name:"url" env:"DATABASE_URL" required:"" help:"Address, such as postgres://user@host/database. Default: the environment's DATABASE_URL, which keeps a password off the command line."`
	JSON    bool          `name:"json" help:"The result as JSON."`
	Strict  bool          `help:"Warnings make the exit code 1 too."`
	Timeout time.Duration `default:"30s" help:"How long it may take (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (*checkCommand) Help() string {
	return `Reports whatever differs from what "loccoddl postgres" prints with the same flags, and how to mend it.
An error means that locks fail or are not safe as things stand; a warning, that they are safe until
something else happens. With -role the rights of that role are checked, else those of the one that connects.

  loccoddl check -url=postgres://admin@db/app -role=app -strict`
}

// Run does it.
func (c *checkCommand) Run(ctx context.Context, out *output) error {
	s := c.schema()
	if _, err := postgres.DDL(s); err != nil {
		return err
	}
	config, err := pgx.ParseConfig(c.URL)
	if err != nil {
		return usage("-url: %w", err) // pgx leaves the password out
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return &codeError{exitConnect, err}
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	drifts, err := postgres.Check(ctx, conn, s)
	if err != nil {
		return &codeError{exitConnect, err}
	}
	count := map[postgres.Severity]int{}
	for _, d := range drifts {
		count[d.Severity]++
	}
	if c.JSON {
		encoder := json.NewEncoder(out.stdout)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(struct {
			Version int              `json:"version"`
			Drifts  []postgres.Drift `json:"drifts"`
		}{postgres.SchemaVersion, drifts}); err != nil {
			return &codeError{exitConnect, err}
		}
	} else {
		for _, d := range drifts {
			fmt.Fprintf(out.stdout, "%s: %s: %s\n", d.Severity, d.Object, d.Problem)
			if d.Fix != "" {
				fmt.Fprintf(out.stdout, "\tfix: %s;\n", d.Fix)
			}
		}
	}
	failed := count[postgres.SeverityError] > 0 || c.Strict && len(drifts) > 0
	summary := fmt.Errorf("%d errors, %d warnings", count[postgres.SeverityError], count[postgres.SeverityWarning])
	if failed {
		return &codeError{exitDrift, summary}
	}
	fmt.Fprintln(out.stderr, "loccoddl:", summary)
	return nil
}
