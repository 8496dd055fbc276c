package postgres

import (
	_ "embed" // the statements are files
	"strings"
)

var (
	//go:embed sql/acquire.sql
	acquireSQL string
	//go:embed sql/acquiremany.sql
	acquireManySQL string
	//go:embed sql/extend.sql
	extendSQL string
	//go:embed sql/extendmany.sql
	extendManySQL string
	//go:embed sql/extendfree.sql
	extendFreeSQL string
	//go:embed sql/holds.sql
	holdsSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/releasenotify.sql
	releaseNotifySQL string
	//go:embed sql/transfer.sql
	transferSQL string
	//go:embed sql/sweep.sql
	sweepSQL string
)

// granting is a statement that grants, without and with a fence.
type granting [2]string

func (g granting) of(fenced bool) string {
	if fenced {
		return g[1]
	}
	return g[0]
}

// statements are the statements for one table. What each takes and answers stands
// on top of its file.
type statements struct {
	acquire, acquireMany, transfer granting
	extend, extendMany, extendFree string
	holds, release, sweep          string
}

// synchronous tells whether a commit waits for a standby.
const synchronous = "current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')"

func newStatements(t table, notify bool) statements {
	fill := func(sql, fence string) string {
		return strings.NewReplacer(
			"{table}", t.quoted(), "{fence}", fence, "{synchronous}", synchronous,
		).Replace(withoutComment(sql))
	}
	plain := func(sql string) string { return fill(sql, "") }
	both := func(sql string) granting {
		return granting{fill(sql, "1::bigint"), fill(sql, "nextval("+literal(t.fence())+"::regclass)")}
	}
	s := statements{
		acquire:     both(acquireSQL),
		acquireMany: both(acquireManySQL),
		transfer:    both(transferSQL),
		extend:      plain(extendSQL),
		extendMany:  plain(extendManySQL),
		extendFree:  plain(extendFreeSQL),
		holds:       plain(holdsSQL),
		release:     plain(releaseSQL),
		sweep:       plain(sweepSQL),
	}
	if notify {
		s.release = plain(releaseNotifySQL)
	}
	return s
}

// withoutComment cuts the comment on top of a file, which no server needs to see, and
// leaves its first line as the name of the statement in logs and pg_stat_activity.
func withoutComment(sql string) string {
	for strings.HasPrefix(sql, "--") {
		_, sql, _ = strings.Cut(sql, "\n")
	}
	return strings.TrimRight(sql, "\n")
}
