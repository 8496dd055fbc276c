package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const spec = `# What it does

1.1 A lock is a lease.
    It has 2.5 lines, and this is not a rule.
1.2 Token.
7.1 Events.

## 8. Backends

8.1 memory.
10.1 Not of the engine either.
`

// complete names all that is required.
const complete = `package x_test

// spec 1.1, 1.2 and 7.1
func TestAll() {}
`

func TestRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		files  map[string]string
		args   []string
		code   int
		stdout []string // lines, whole, in this order
		stderr []string // parts
	}{
		{
			name:   "Complete",
			files:  map[string]string{"core/a_test.go": complete},
			stdout: []string{"rules: 3 rules of sections 1 to 7, each with a test or pending"},
		},
		{
			name:  "Missing",
			files: map[string]string{"core/a_test.go": "package x\n\n// spec 1.1\nfunc TestA() {}\n"},
			code:  1,
			stderr: []string{
				"docs/spec.md:5: no test names spec 1.2: Token.\n",
				"docs/spec.md:6: no test names spec 7.1: Events.\n",
				"rules: 2 complaints\n",
			},
		},
		{
			name:   "Unknown",
			files:  map[string]string{"core/a_test.go": complete, "core/a.go": "package x\n\n// See spec 1.2 and spec 1.3.\n"},
			code:   1,
			stderr: []string{"core/a.go:3: there is no spec 1.3\n", "rules: 1 complaints\n"},
		},
		{
			name:  "Pending",
			files: map[string]string{"core/a_test.go": "package x\n\n// spec 1.1\nfunc TestA() {}\n"},
			args:  []string{"-pending", "1.2,7.1"},
			stdout: []string{
				"rules: spec 1.2 has no test yet: Token.",
				"rules: spec 7.1 has no test yet: Events.",
				"rules: 3 rules of sections 1 to 7, each with a test or pending",
			},
		},
		{
			name:   "PendingNoMore",
			files:  map[string]string{"core/a_test.go": complete},
			args:   []string{"-pending", "1.2"},
			code:   1,
			stderr: []string{"docs/spec.md:5: spec 1.2 has a test; take it off -pending\n"},
		},
		{
			name: "OnlyTestsCount",
			files: map[string]string{
				"core/a.go":                       "package x\n\n// A holds spec 1.1, 1.2, 7.1.\nfunc A() {}\n",
				"core/testdata/a_test.go":         complete,
				".hidden/a_test.go":               complete,
				"contract/doc.go":                 "// Package contract has spec 1.1, 1.2, 7.1.\npackage contract\n",
				"contract/rules.go":               "package contract\n\nconst unused = \"spec 1.1, 1.2, 7.1\"\n",
				"contract/integration/helpers.go": "package integration\n\n// spec 1.1, 1.2, 7.1\nfunc f() {}\n",
			},
			code:   1,
			stderr: []string{"rules: 3 complaints\n"},
		},
		{
			name: "Forms",
			files: map[string]string{
				"core/a_test.go": "package x\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tt.Error(\"Spec 1.1: no\")\n}\n",
				// Broken over two lines, and outside of a declaration.
				"memory/b_test.go": "package x\n\n\t// It is spec\n\t// 1.2,\n\t// 8.1 and 10.1\n",
				// The inspection 1.2 and the version spec 1.2.3 are no references.
				"memory/c_test.go": "package x\n\n// The inspec 9.9 is not.\nvar c = \"spec 7.1\"\n",
			},
			args: []string{"-table"},
			stdout: []string{
				"1.1   core/a_test.go: TestA",
				"1.2   memory/b_test.go: ",
				"7.1   memory/c_test.go: c",
				"8.1   memory/b_test.go: ",
				"10.1  memory/b_test.go: ",
				"rules: 3 rules of sections 1 to 7, each with a test or pending",
			},
		},
		{
			name: "Suite",
			files: map[string]string{
				"contract/rules.go": "package contract\n\nconst (\n\truleA = \"spec 1.1: a\"\n\truleB = \"spec 1.2\" + \" and spec 8.1\"\n)\n",
				"contract/a.go":     "package contract\n\nfunc testA() { use(ruleA, ruleB); use(ruleA) }\n\n// spec 7.1\nfunc testB() {}\n",
			},
			args: []string{"-table"},
			stdout: []string{
				"1.1   contract/a.go: testA",
				"1.2   contract/a.go: testA",
				"7.1   contract/a.go: testB",
				"8.1   contract/a.go: testA",
				"10.1  -",
				"rules: 3 rules of sections 1 to 7, each with a test or pending",
			},
		},
		{
			name:   "NotGo",
			files:  map[string]string{"core/a_test.go": "package"},
			code:   2,
			stderr: []string{"core/a_test.go"},
		},
		{name: "Usage", args: []string{"-no-such-flag"}, code: 2, stderr: []string{"no-such-flag"}},
		{name: "Arguments", args: []string{"x"}, code: 2, stderr: []string{`unexpected argument "x"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			write(t, root, "docs/spec.md", spec)
			for name, text := range tc.files {
				write(t, root, name, text)
			}
			var stdout, stderr strings.Builder
			code := run(append([]string{"-root", root}, tc.args...), &stdout, &stderr)
			if code != tc.code {
				t.Errorf("exit code = %d; want %d", code, tc.code)
			}
			want := ""
			if len(tc.stdout) > 0 {
				want = strings.Join(tc.stdout, "\n") + "\n"
			}
			if got := stdout.String(); got != want {
				t.Errorf("stdout = %q; want %q", got, want)
			}
			for _, part := range tc.stderr {
				if !strings.Contains(stderr.String(), part) {
					t.Errorf("stderr = %q; want it to have %q", stderr.String(), part)
				}
			}
			if len(tc.stderr) == 0 && stderr.Len() > 0 {
				t.Errorf("stderr = %q; want nothing", stderr.String())
			}
		})
	}
}

func TestRunWithoutASpec(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, root string){
		"NoFile":  func(*testing.T, string) {},
		"NoRules": func(t *testing.T, root string) { t.Helper(); write(t, root, "docs/spec.md", "# Nothing\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			prepare(t, root)
			var stdout, stderr strings.Builder
			if code := run([]string{"-root", root}, &stdout, &stderr); code != 2 || stderr.Len() == 0 {
				t.Errorf("run = %d, %q; want 2 and the reason", code, stderr.String())
			}
		})
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
