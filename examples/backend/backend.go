// Package backend keeps a repository in a SQLite database: an example of a backend that
// a program adds to repolock.
//
//	st, err := backend.Open(ctx, "/srv/backups.db")
//	locker, err := replock.New(st, replock.Options{})
//
// storetest.Run, in the test of this package, checks the contract of store.Store.
//
// # Guarantees
//
// Each method is one SQL statement, which SQLite carries out whole or not at all, so
// that conditional puts are kept. A put is on the disk when it is answered. SQLite needs
// a local file system: all clients are processes of one machine, and its clock, which
// SQLite reads once it has the database's lock, is the store's.
package backend

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/repolock/repolock/store"
)

// Store is a repository in a database. Its methods can be called concurrently.
type Store struct{ db *sql.DB }

var _ store.Store = (*Store)(nil)

const schema = `CREATE TABLE IF NOT EXISTS objects (
	key BLOB PRIMARY KEY, body BLOB NOT NULL, etag TEXT NOT NULL, modified INTEGER NOT NULL
) WITHOUT ROWID`

// now is the time in milliseconds, rounded down.
const now = `CAST(unixepoch('subsec') * 1000 AS INTEGER)`

// Open opens the database at path, and makes it if it doesn't exist.
func Open(ctx context.Context, path string) (*Store, error) {
	// WAL lets readers and a writer work side by side. FULL syncs each commit.
	pragmas := url.Values{"_pragma": {"busy_timeout(100)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: pragmas.Encode()}).String())
	if err != nil {
		return nil, failed(ctx, "open", path, err)
	}
	db.SetMaxOpenConns(4)
	s := &Store{db}
	if _, err := s.exec(ctx, schema); err != nil {
		return nil, errors.Join(failed(ctx, "open", path, err), db.Close())
	}
	return s, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Properties returns that conditions are kept, and that the machine's clock stamps objects.
func (s *Store) Properties() store.Properties {
	return store.Properties{Name: "sqlite", IfAbsent: store.Kept, IfMatch: store.Kept, StoreClock: true}
}

// Put stores body under key. The condition is part of the statement that writes, which
// makes both one atomic step.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Object{}, failed(ctx, "put", key, err)
	}
	o := store.Object{Key: key, ETag: rand.Text(), Size: int64(len(body))}
	args := []any{sql.Named("key", []byte(key)), sql.Named("body", blob(body)), sql.Named("etag", o.ETag)}
	query := `INSERT INTO objects VALUES (:key, :body, :etag, ` + now + `)`
	switch {
	case opts.IfMatch != "":
		query = `UPDATE objects SET body = :body, etag = :etag, modified = ` + now + ` WHERE key = :key AND etag = :match`
		args = append(args, sql.Named("match", opts.IfMatch))
	case opts.IfAbsent:
		query += ` ON CONFLICT DO NOTHING`
	default:
		query += ` ON CONFLICT DO UPDATE SET body = :body, etag = :etag, modified = ` + now
	}
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		err = store.ErrPrecondition
	}
	if err != nil {
		return store.Object{}, failed(ctx, "put", key, err)
	}
	return o, nil
}

// Get reads an object of at most limit bytes.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, store.Object{}, failed(ctx, "get", key, err)
	}
	var body []byte
	o := store.Object{Key: key}
	var modified int64
	err := free(ctx, func() error {
		return s.db.QueryRowContext(ctx, `SELECT etag, modified, length(body), CASE WHEN length(body) <= ? THEN body END FROM objects WHERE key = ?`,
			limit, []byte(key)).Scan(&o.ETag, &modified, &o.Size, &body)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = store.ErrNotFound
	case err == nil && o.Size > limit:
		err = store.ErrTooLarge
	}
	if err != nil {
		return nil, store.Object{}, failed(ctx, "get", key, err)
	}
	o.ModTime = time.UnixMilli(modified)
	return blob(body), o, nil
}

// pageSize is the number of objects in a page.
const pageSize = 1000

// List returns a page. The cursor is its last key.
func (s *Store) List(ctx context.Context, prefix, cursor string) (page store.Page, err error) {
	err = free(ctx, func() error {
		page, err = s.list(ctx, prefix, cursor)
		return err
	})
	if err != nil {
		return store.Page{}, failed(ctx, "list", prefix, err)
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, prefix, cursor string) (page store.Page, err error) {
	page.Now = time.Now().Round(0) // before the look
	rows, err := s.db.QueryContext(ctx, `SELECT key, etag, modified, length(body) FROM objects WHERE key >= ? AND key > ? ORDER BY key LIMIT ?`,
		blob([]byte(prefix)), blob([]byte(cursor)), pageSize+1)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		var modified int64
		var o store.Object
		if err := rows.Scan(&key, &o.ETag, &modified, &o.Size); err != nil {
			return page, err
		}
		o.Key, o.ModTime = string(key), time.UnixMilli(modified)
		if !strings.HasPrefix(o.Key, prefix) {
			break
		}
		if n := len(page.Objects); n == pageSize {
			page.Next = page.Objects[n-1].Key
			break
		}
		page.Objects = append(page.Objects, o)
	}
	return page, rows.Err()
}

// Delete removes an object. One that doesn't exist is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := store.CheckKey(key)
	if err == nil {
		_, err = s.exec(ctx, `DELETE FROM objects WHERE key = ?`, []byte(key))
	}
	if err != nil {
		return failed(ctx, "delete", key, err)
	}
	return nil
}

// exec runs a statement and returns the number of rows that it changed.
func (s *Store) exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = free(ctx, func() error {
		result, err := s.db.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	return n, err
}

// free runs a statement until the database isn't locked by another. A statement that was
// refused as busy did nothing, so this repeats no request.
func free(ctx context.Context, statement func() error) error {
	for {
		err := statement()
		if code(err) != codes.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// blob is never nil, which would be NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// code returns SQLite's primary result code.
func code(err error) int {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return codes.SQLITE_OK
}

// failed returns an error as the contract wants it: a *store.Error in one line, with the
// errors of package store in it.
func failed(ctx context.Context, op, key string, err error) error {
	switch code(err) {
	case codes.SQLITE_INTERRUPT:
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	case codes.SQLITE_FULL:
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	case codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_AUTH:
		err = fmt.Errorf("%w: %w", store.ErrPermission, err)
	case codes.SQLITE_NOTADB, codes.SQLITE_CANTOPEN:
		err = fmt.Errorf("%w: %w", store.ErrConfig, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}
