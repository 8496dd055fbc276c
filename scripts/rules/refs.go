package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ref is one place that names a rule.
type ref struct {
	rule     string
	file     string // from the root, with slashes
	line     int
	function string // the declaration around it, or "" outside of any
	test     bool   // it counts as a test of the rule
}

var (
	// A reference may name several rules, and a comment may be broken anywhere
	// within it.
	refText   = regexp.MustCompile(`(?i)\bspec` + gap + number + `(?:(?:,|,?` + gap + `and)` + gap + number + `)*`)
	refNumber = regexp.MustCompile(number)
)

const (
	gap    = `(?:\s|//)+`
	number = `\d+\.\d+\b`
)

// scan returns the references of all Go files below root, by file and line.
func scan(root string) ([]ref, error) {
	files := map[string]*source{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && skipped(rel):
			return fs.SkipDir
		case d.IsDir() || path.Ext(rel) != ".go":
			return nil
		}
		files[rel], err = parse(rel, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	var refs []ref
	for _, f := range files {
		refs = append(refs, f.refs()...)
	}
	refs = append(refs, suiteConstants(files)...)
	slices.SortFunc(refs, func(a, b ref) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return refs, nil
}

// skipped tells whether a folder has no tests of ours. The tests of this program
// name rules that do not exist.
func skipped(folder string) bool {
	name := path.Base(folder)
	return strings.HasPrefix(name, ".") && folder != "." || name == "testdata" || folder == "scripts/rules"
}

// source is one Go file.
type source struct {
	name   string
	text   []byte
	tokens *token.File
	tree   *ast.File
}

func parse(name, file string) (*source, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{name: name, text: text, tokens: set.File(tree.FileStart), tree: tree}, nil
}

// suite tells whether the file belongs to the contract suite, which is test code
// that others import.
func (s *source) suite() bool {
	return path.Dir(s.name) == "contract" && !strings.HasSuffix(s.name, "_test.go")
}

// refs returns what the text of the file names.
func (s *source) refs() []ref {
	var refs []ref
	for _, at := range refText.FindAllIndex(s.text, -1) {
		for _, n := range refNumber.FindAllIndex(s.text[at[0]:at[1]], -1) {
			from, to := at[0]+n[0], at[0]+n[1]
			decl := s.around(s.tokens.Pos(from))
			_, function := decl.(*ast.FuncDecl)
			refs = append(refs, ref{
				rule:     string(s.text[from:to]),
				file:     s.name,
				line:     s.tokens.Line(s.tokens.Pos(from)),
				function: declName(decl),
				test:     strings.HasSuffix(s.name, "_test.go") || s.suite() && function,
			})
		}
	}
	return refs
}

// around returns the top-level declaration, with its comment, that has pos.
func (s *source) around(pos token.Pos) ast.Decl {
	for _, decl := range s.tree.Decls {
		from := decl.Pos()
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc != nil {
				from = d.Doc.Pos()
			}
		case *ast.GenDecl:
			if d.Doc != nil {
				from = d.Doc.Pos()
			}
		}
		if from <= pos && pos < decl.End() {
			return decl
		}
	}
	return nil
}

// declName returns the name of a function, or the first of other declarations.
func declName(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				return spec.Names[0].Name
			case *ast.TypeSpec:
				return spec.Name.Name
			}
		}
	}
	return ""
}

// suiteConstants returns a reference for each use, in a function of the contract
// suite, of a constant whose value names a rule. A constant that nothing uses is
// no test.
func suiteConstants(files map[string]*source) []ref {
	rules := map[string][]string{} // by the name of the constant
	for _, f := range files {
		if !f.suite() {
			continue
		}
		for _, decl := range f.tree.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				spec := spec.(*ast.ValueSpec)
				text := string(f.text[f.tokens.Offset(spec.Pos()):f.tokens.Offset(spec.End())])
				for _, names := range refText.FindAllString(text, -1) {
					rules[spec.Names[0].Name] = append(rules[spec.Names[0].Name], refNumber.FindAllString(names, -1)...)
				}
			}
		}
	}
	var refs []ref
	for _, f := range files {
		if !f.suite() {
			continue
		}
		for _, decl := range f.tree.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				for _, rule := range rules[id.Name] {
					refs = append(refs, ref{
						rule: rule, file: f.name, line: f.tokens.Line(id.Pos()), function: d.Name.Name, test: true,
					})
				}
				return true
			})
		}
	}
	return refs
}
