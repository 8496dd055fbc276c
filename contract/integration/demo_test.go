package integration_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/locco-go/locco/contract/integration"
)

// The demo plays every scene on real servers.
func TestDemo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		demo(t, "redis", "redis://"+integration.SharedRedis(t, r).Addr)
	})
}

func TestDemoPostgres(t *testing.T) {
	t.Parallel()
	demo(t, "postgres", integration.SharedPostgres(t, integration.Postgres17).Database(t))
}

func TestDemoMongo(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		demo(t, "mongo", integration.StartMongo(t, m).URL)
	})
}

func demo(t *testing.T, backend, url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./demo", "-backend="+backend, "-url="+url)
	cmd.Dir = "../../docs/examples"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	for _, want := range []string{"locco on " + backend, "lost (extend)", "(disk)   refuses hans", "Done: 17 locks taken"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}
