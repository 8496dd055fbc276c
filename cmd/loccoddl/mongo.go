package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"

	loccomongo "github.com/locco-go/locco/mongo"
)

type mongoCommand struct {
	Collection string `default:"locco-locks" help:"Collection of the locks (default: ${default})."`

	Format  string `default:"mongosh" enum:"mongosh,json,migrate-mongo" help:"For what: mongosh, json (a document for runCommand), migrate-mongo (default: ${default})."`
	Output  string `short:"o" placeholder:"DIR" help:"Write the migration into this folder. A file that is there and differs is left alone."`
	Version string `default:"1" help:"Version in the file's name: what comes next in your folder (default: ${default})."`
	Name    string `default:"locco_locks" help:"Name in the file's name (default: ${default})."`
	Down    bool   `help:"The other way round: drop the indexes. Documents stay."`
}

// Help implements kong.HelpProvider.
func (*mongoCommand) Help() string {
	return `Without -o the result goes to stdout. It can run again. The first use of locco/mongo creates the
indexes by itself, unless mongo.WithoutSetUp is given.

  loccoddl mongo | mongosh "$MONGODB_URL"
  loccoddl mongo -format=migrate-mongo -version=20260102150405 -o=migrations`
}

// Run does it.
func (c *mongoCommand) Run(out *output) error {
	switch {
	case c.Collection == "" || strings.HasPrefix(c.Collection, "system.") || strings.ContainsFunc(c.Collection, func(r rune) bool {
		return r == '$' || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}):
		return usage("-collection %q: must not be empty, begin with system., or have $ or control characters in it", c.Collection)
	case !plainVersion.MatchString(c.Version):
		return usage("-version %q: must be a number, such as 7 or 20260102150405", c.Version)
	case !plainName.MatchString(c.Name):
		return usage("-name %q: must be letters, digits and _", c.Name)
	}
	create, err := document(loccomongo.CreateIndexes(c.Collection))
	if err != nil {
		return err
	}
	drop, err := document(loccomongo.DropIndexes(c.Collection))
	if err != nil {
		return err
	}
	forward, back := create, drop
	if c.Down {
		forward, back = drop, create
	}
	files := mongoFiles(c, forward, back)
	if c.Output != "" {
		return write(c.Output, files, out)
	}
	fmt.Fprint(out.stdout, files[0].text)
	return nil
}

// mongoFiles are what the format is made of: the step, and the way back.
func mongoFiles(c *mongoCommand, forward, back string) []file {
	header := fmt.Sprintf("// locco indexes for MongoDB\n// loccoddl mongo -collection=%s\n", c.Collection)
	switch c.Format {
	case "json":
		return []file{{c.Name + ".json", forward}, {c.Name + ".down.json", back}}
	case "migrate-mongo":
		step := func(name, command string) string {
			return "  async " + name + "(db) {\n    await db.command(" + indent(command, "    ") + ");\n  },\n"
		}
		return []file{{
			c.Version + "-" + c.Name + ".js",
			header + "module.exports = {\n" + step("up", forward) + step("down", back) + "};\n",
		}}
	}
	shell := func(command string) string {
		return header + "db.runCommand(" + indent(command, "") + ");\n"
	}
	return []file{{c.Name + ".js", shell(forward)}, {c.Name + ".down.js", shell(back)}}
}

// document is a command in JSON, which is JavaScript too.
func document(command bson.D) (string, error) {
	compact, err := bson.MarshalExtJSON(command, false, false)
	if err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(json.RawMessage(compact), "", "  ")
	if err != nil {
		return "", err
	}
	return string(text) + "\n", nil
}

func indent(text, by string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
