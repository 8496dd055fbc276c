module github.com/locco-go/locco/scripts

go 1.26.0
