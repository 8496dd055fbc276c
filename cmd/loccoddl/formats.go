package main

import "strings"

// migration is a step of the schema and the way back.
type migration struct {
	header        []string
	version, name string
	forward, back []string
}

type file struct{ name, text string }

// format is how a tool wants its migrations.
type format struct {
	first string   // the version if none is given
	traps []string // what a name must not have in it
	hint  string   // for stderr
	files func(m *migration) []file
}

// splitters and placeholders are what tools look for, also inside of quoted names.
var splitters = []string{";", "'", `"`, `\`, "--", "/*", "*/", "${"}

// formats knows the tools. A statement never has a semicolon or a body in it, so that
// every way of splitting a file gives the same.
var formats = map[string]format{
	"sql": {first: "1", files: func(m *migration) []file {
		return []file{
			{m.name + ".sql", plain(m.header, m.forward)},
			{m.name + ".down.sql", plain(m.header, m.back)},
		}
	}},
	"goose": {first: "00001", traps: append([]string{"+goose"}, splitters...), files: goose},
	"golang-migrate": {first: "000001", traps: splitters, files: func(m *migration) []file {
		return []file{
			{m.version + "_" + m.name + ".up.sql", plain(m.header, m.forward)},
			{m.version + "_" + m.name + ".down.sql", plain(m.header, m.back)},
		}
	}},
	"dbmate": {first: "1", traps: splitters, files: func(m *migration) []file {
		text := lines(m.header) + "\n-- migrate:up\n\n" + statements(m.forward) + "\n-- migrate:down\n\n" + statements(m.back)
		return []file{{m.version + "_" + m.name + ".sql", text}}
	}},
	"atlas": {
		first: "1", traps: splitters, hint: "loccoddl: now run: atlas migrate hash",
		files: func(m *migration) []file {
			// It works out the way back by itself.
			return []file{{m.version + "_" + m.name + ".sql", plain(m.header, m.forward)}}
		},
	},
	"flyway": {first: "1", traps: splitters, files: func(m *migration) []file {
		return []file{
			{"V" + m.version + "__" + m.name + ".sql", plain(m.header, m.forward)},
			{"U" + m.version + "__" + m.name + ".sql", plain(m.header, m.back)},
		}
	}},
	"liquibase": {first: "1", traps: splitters, files: liquibase},
}

func lines(ls []string) string { return strings.Join(ls, "\n") + "\n" }

func statements(ss []string) string {
	var b strings.Builder
	for _, s := range ss {
		b.WriteString(s + ";\n")
	}
	return b.String()
}

func plain(header, ss []string) string { return lines(header) + "\n" + statements(ss) }

// goose marks every statement, so that nothing depends on where lines end.
func goose(m *migration) []file {
	var b strings.Builder
	b.WriteString(lines(m.header))
	for _, part := range []struct {
		name       string
		statements []string
	}{{"Up", m.forward}, {"Down", m.back}} {
		b.WriteString("\n-- +goose " + part.name + "\n")
		for _, s := range part.statements {
			b.WriteString("-- +goose StatementBegin\n" + s + ";\n-- +goose StatementEnd\n")
		}
	}
	return []file{{m.version + "_" + m.name + ".sql", b.String()}}
}

// liquibase writes one change set that is sent as it is. Its header has to be the first
// line.
func liquibase(m *migration) []file {
	var b strings.Builder
	b.WriteString("--liquibase formatted sql\n\n" + lines(m.header) +
		"\n--changeset locco:" + m.version + "_" + m.name +
		" dbms:postgresql splitStatements:false rollbackSplitStatements:false stripComments:false\n" + statements(m.forward))
	for line := range strings.Lines(statements(m.back)) {
		b.WriteString("--rollback " + line)
	}
	return []file{{m.version + "_" + m.name + ".sql", b.String()}}
}
