package protocol

import _ "embed" // the scripts are files

// Script is a Lua script and the name under which a server keeps it.
type Script struct {
	// Name says in an error which script it was.
	Name string

	// Source is sent by EVAL when the server does not know the script: after SCRIPT
	// FLUSH, a restart or a failover.
	Source string

	// SHA is the SHA-1 of Source in hexadecimal digits, for EVALSHA. It is written
	// here and checked by a test, so that no program computes it: SHA-1 is not
	// to be had everywhere (FIPS 140).
	SHA string
}

var (
	//go:embed grant.lua
	grantSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed acquiremany.lua
	acquireManySource string
	//go:embed extend.lua
	extendSource string
	//go:embed extendmany.lua
	extendManySource string
	//go:embed release.lua
	releaseSource string
	//go:embed holds.lua
	holdsSource string
	//go:embed transfer.lua
	transferSource string
	//go:embed raise.lua
	raiseSource string
	//go:embed guard.lua
	guardSource string
)

// The scripts. What each takes and returns stands on top of its file; the
// functions of this package build the arguments and read the answers.
var (
	Acquire     = Script{"acquire", grantSource + acquireSource, "c390b2ff22ce561e5910769ef08de5e214a7350d"}
	AcquireMany = Script{"acquiremany", grantSource + acquireManySource, "0e3104849b56d4fc5b5a3989d9da4bbadf13769f"}
	Extend      = Script{"extend", extendSource, "51c3d9e63d14848c719c49017714e66cc292778c"}
	ExtendMany  = Script{"extendmany", extendManySource, "c24b7832046636d46c5cfff3e8f13153709a03ba"}
	Release     = Script{"release", releaseSource, "c772892104448eadd603787e3c9966ef909e5255"}
	Holds       = Script{"holds", holdsSource, "691323c15c5278ab4124a18f7f0b675b880f8f20"}
	Transfer    = Script{"transfer", grantSource + transferSource, "8f2b451b3b2b5858bcd07db0bc05c81e38e2d834"}
	Raise       = Script{"raise", raiseSource, "ad31a20ad2006a09ebf4f03316f2b659d7241d96"}
	Guard       = Script{"guard", guardSource, "2dbb339289d1c763f1a69aeb0256c5741f082701"}
)

// Scripts returns all scripts.
func Scripts() []Script {
	return []Script{Acquire, AcquireMany, Extend, ExtendMany, Release, Holds, Transfer, Raise, Guard}
}
