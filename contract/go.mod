module github.com/locco-go/locco/contract

go 1.26.0

require github.com/locco-go/locco/core v0.1.0

replace github.com/locco-go/locco/core => ../core
