module github.com/repolock/repolock/locking/bench

go 1.26.0

replace github.com/repolock/repolock => ../..

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/repolock/repolock v0.0.0-00010101000000-000000000000
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
