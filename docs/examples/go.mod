module github.com/locco-go/locco/docs/examples

go 1.26.0

require (
	github.com/locco-go/locco/core v0.1.0
	github.com/locco-go/locco/memory v0.1.0
)

replace (
	github.com/locco-go/locco/contract => ../../contract
	github.com/locco-go/locco/core => ../../core
	github.com/locco-go/locco/memory => ../../memory
)
