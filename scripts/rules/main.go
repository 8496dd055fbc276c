// Command rules holds the tests against docs/spec.md: every rule of its sections
// 1 to 7 is named by a test, as in "spec 2.6" or "spec 1.3, 1.10", and no such
// reference names a rule that does not exist.
//
// What counts as a test is any *_test.go file, and the functions of the contract
// suite. A constant of the suite counts where it is used.
//
//	go run ./scripts/rules [-table] [-pending rules] [-root directory]
//
// With -table it prints each rule with its tests. Rules that wait for a module
// that is still to be written are given with -pending, and have to leave it as
// soon as they have a test. It exits with 1 when something is missing.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rules", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the `directory` of the repository")
	pending := flags.String("pending", "", "`rules` that cannot have a test yet, such as 6.2,6.5")
	table := flags.Bool("table", false, "print each rule with its tests")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "rules: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	text, err := os.ReadFile(filepath.Join(*root, "docs", "spec.md"))
	if err != nil {
		fmt.Fprintln(stderr, "rules:", err)
		return 2
	}
	rules := parseSpec(string(text))
	if len(rules) == 0 {
		fmt.Fprintln(stderr, "rules: docs/spec.md has no rules; they are lines that start as in \"1.1 A lock is\"")
		return 2
	}
	refs, err := scan(*root)
	if err != nil {
		fmt.Fprintln(stderr, "rules:", err)
		return 2
	}
	r := match(rules, refs)
	for number := range strings.SplitSeq(*pending, ",") {
		r.pending[number] = true
	}
	if *table {
		r.print(stdout)
	}
	return r.judge(stdout, stderr)
}

// report is the spec held against the tests.
type report struct {
	rules   []rule
	tests   map[string][]ref // by the number of the rule
	unknown []ref            // to rules that do not exist
	pending map[string]bool  // need no test yet
}

func match(rules []rule, refs []ref) report {
	r := report{rules: rules, tests: map[string][]ref{}, pending: map[string]bool{}}
	known := map[string]bool{}
	for _, rule := range rules {
		known[rule.number] = true
	}
	for _, ref := range refs {
		switch {
		case !known[ref.rule]:
			r.unknown = append(r.unknown, ref)
		case ref.test:
			r.tests[ref.rule] = append(r.tests[ref.rule], ref)
		}
	}
	return r
}

// print writes the table. A test that names a rule more than once has one line.
func (r report) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, rule := range r.rules {
		tests := r.tests[rule.number]
		if len(tests) == 0 {
			fmt.Fprintf(tw, "%s\t-\n", rule.number)
		}
		number, last := rule.number, ""
		for _, test := range tests {
			if where := test.file + ": " + test.function; where != last {
				fmt.Fprintf(tw, "%s\t%s\n", number, where)
				number, last = "", where
			}
		}
	}
	tw.Flush()
}

// judge says what is missing and returns the exit code.
func (r report) judge(stdout, stderr io.Writer) int {
	required, wrong := 0, 0
	complain := func(format string, args ...any) {
		wrong++
		fmt.Fprintf(stderr, format+"\n", args...)
	}
	for _, rule := range r.rules {
		if !rule.required() {
			continue
		}
		required++
		tested, pending := len(r.tests[rule.number]) > 0, r.pending[rule.number]
		switch {
		case tested && pending:
			complain("docs/spec.md:%d: spec %s has a test; take it off -pending", rule.line, rule.number)
		case pending:
			fmt.Fprintf(stdout, "rules: spec %s has no test yet: %s\n", rule.number, rule.title)
		case !tested:
			complain("docs/spec.md:%d: no test names spec %s: %s", rule.line, rule.number, rule.title)
		}
	}
	for _, ref := range r.unknown {
		complain("%s:%d: there is no spec %s", ref.file, ref.line, ref.rule)
	}
	if wrong > 0 {
		fmt.Fprintf(stderr, "rules: %d complaints\n", wrong)
		return 1
	}
	fmt.Fprintf(stdout, "rules: %d rules of sections 1 to 7, each with a test or pending\n", required)
	return 0
}
