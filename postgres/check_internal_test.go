package postgres

import (
	"slices"
	"testing"
)

// The setting is read as the server reads it. It has no function for that.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string][]string{
		``:                         nil,
		`""`:                       nil,
		`"$user", public`:          {"me", "public"},
		`$user,Public`:             {"me", "public"},
		`"A b" , c`:                {"A b", "c"},
		`"say ""hi"", you", "x,y"`: {`say "hi", you`, "x,y"},
		` a `:                      {"a"},
		`"""",b`:                   {`"`, "b"},
	} {
		if got := searchPath(setting, "me"); !slices.Equal(got, want) {
			t.Errorf("searchPath(%s) = %q; want %q", setting, got, want)
		}
	}
}
