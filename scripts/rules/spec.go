package main

import (
	"regexp"
	"strings"
)

// rule is one rule of the spec.
type rule struct {
	number string // such as "2.6"
	title  string // the rest of its first line
	line   int
}

var ruleLine = regexp.MustCompile(`^(\d+\.\d+) (.+)$`)

// parseSpec returns the rules in the order of the page.
func parseSpec(text string) []rule {
	var rules []rule
	for i, line := range strings.Split(text, "\n") {
		if m := ruleLine.FindStringSubmatch(strings.TrimRight(line, "\r")); m != nil {
			rules = append(rules, rule{number: m[1], title: m[2], line: i + 1})
		}
	}
	return rules
}

// required tells whether the rule is one of the engine, in sections 1 to 7. Those
// of the backends and the tools are held in ways of their own.
func (r rule) required() bool {
	section, _, _ := strings.Cut(r.number, ".")
	return len(section) == 1 && section >= "1" && section <= "7"
}
