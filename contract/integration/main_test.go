package integration_test

import (
	"os"
	"testing"

	"github.com/locco-go/locco/contract/integration"
)

func TestMain(m *testing.M) { os.Exit(integration.Main(m)) }
