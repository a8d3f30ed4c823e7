package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// notePrefix is in front of the name of a lock in the key of its note. It is none of the locks'
// own prefixes, so that a program that lists the locks doesn't see the notes.
const notePrefix = "repolock:holder:"

// note is what others read about a holder.
type note struct {
	Revision string    `json:"revision"` // of the lock that the note is about
	Holder   string    `json:"holder"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Version  string    `json:"version,omitempty"`
	Acquired time.Time `json:"acquired"`
	TTL      int64     `json:"ttl_ms"`
}

// revision identifies a token without revealing it. The server's scripts compute it, too.
func revision(token string) string {
	sum := sha1.Sum([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newNote returns the note of a lock that is acquired now.
func (b *Backend) newNote(h locking.Handle) string {
	text, err := json.Marshal(note{
		revision(h.Token()), b.opts.Holder, b.opts.Host, b.opts.PID, b.opts.Version, b.opts.Clock.Now().UTC(),
		milliseconds(h.TTL()),
	})
	if err != nil {
		return dropNote // a year that JSON can't have
	}
	return string(text)
}

// noteCommand returns the command that writes, keeps or drops a note, or nil if there are no notes.
func (b *Backend) noteCommand(h locking.Handle, text string) []any {
	if b.quiet.Load() {
		return nil
	}
	name := b.prefix + h.Key()
	return []any{"EVAL", noteScript, 2, name, notePrefix + name, h.Token(), text, milliseconds(h.TTL())}
}

// heed stops the notes if the server refuses them, which it does because of its ACL, its cluster or
// a missing command.
func (b *Backend) heed(noted *goredis.Cmd) {
	if noted == nil {
		return
	}
	for _, refusal := range []string{"NOPERM", "CROSSSLOT", "unknown command"} {
		if goredis.HasErrorPrefix(noted.Err(), refusal) {
			b.quiet.Store(true)
		}
	}
}
