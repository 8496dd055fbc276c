module github.com/locco-go/locco/core

go 1.26.0
