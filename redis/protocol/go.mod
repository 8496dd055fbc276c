module github.com/locco-go/locco/redis/protocol

go 1.26.0
