// Package postgres is the backend of locco for PostgreSQL, through the driver pgx v5.
package postgres
