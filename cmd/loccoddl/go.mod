module github.com/locco-go/locco/cmd/loccoddl

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/locco-go/locco/core v0.1.0
	github.com/locco-go/locco/mongo v0.1.0
	github.com/locco-go/locco/postgres v0.1.0
	go.mongodb.org/mongo-driver/v2 v2.10.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/xdg-go/scram v1.4.0 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace (
	github.com/locco-go/locco/contract => ../../contract
	github.com/locco-go/locco/core => ../../core
	github.com/locco-go/locco/mongo => ../../mongo
	github.com/locco-go/locco/postgres => ../../postgres
)
