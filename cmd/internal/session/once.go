package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Once skips a job that has succeeded less than Period ago, on any machine. The last success is an object beside the
// job's exclusive lock: docs/evidence/decisions/0009-once-per.md.
type Once struct {
	Repository *Repository // of the lock
	Place      Place       // of the lock
	Job        string      // the user's name for the job, or ""
	Period     time.Duration
}

// Success is the JSON of the object. The times are by the holder's clock, for people. Fields are only ever added.
type Success struct {
	Operation   string    `json:"operation"`
	Job         string    `json:"job,omitempty"`
	Holder      string    `json:"holder"`
	ID          string    `json:"id"` // of the lock
	BeganAt     time.Time `json:"began_at"`
	SucceededAt time.Time `json:"succeeded_at"`
}

// Dated is a success with its time and its age, both on the store's clock.
type Dated struct {
	Success
	At  time.Time
	Age time.Duration
}

// String describes the success in one line.
func (d Dated) String() string {
	job := text.Brief(d.Operation)
	if d.Job != "" {
		job += " (" + text.Brief(d.Job) + ")"
	}
	if d.Holder == "" {
		return "the last success of " + job + " can't be read"
	}
	at, by := d.At.UTC().Format(time.RFC3339), text.Brief(d.Holder)
	if d.Age < -ahead { // so the next start runs the job
		return fmt.Sprintf("%s has succeeded at %s, by %s; that is dated %s in the future", job, at, by, text.Duration(-d.Age))
	}
	return fmt.Sprintf("%s has succeeded %s, at %s, by %s", job, text.Ago(d.Age), at, by)
}

// SucceededError is the error of a command that is skipped, because its job has succeeded.
type SucceededError struct {
	Dated
	Period time.Duration
}

func (e *SucceededError) Error() string {
	return fmt.Sprintf("%s; it runs once per %s", e.Dated, text.Duration(e.Period))
}

// Unwrap returns the class.
func (e *SucceededError) Unwrap() error { return fault.Succeeded }

// key returns the key of the object.
func (o *Once) key() string {
	key := o.Place.Prefix() + folder + element(o.Repository.Operation)
	if o.Job != "" {
		key += "." + element(o.Job)
	}
	return key
}

// element returns a part of a key for any name. Names that file systems might not keep apart become hashes. No name of a
// lock begins with an underscore.
func element(name string) string {
	if replock.CheckName(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "_" + hex.EncodeToString(sum[:16])
}

const (
	// folder is the place of the objects below a lock's prefix.
	folder = "lock-once/"
	// maxSuccess is the largest size of the object, in bytes. JSON writes a byte of a name as six at most.
	maxSuccess = 8 << 10
	// ahead is how far the object can be dated ahead of the listing that shows it. S3 servers round the time of a
	// listing down to a second, and the clocks of their gateways differ a little.
	ahead = 2 * time.Second
)

// Succeeded returns the last success if it is less than Period ago, or nil. flag is the key of the held lock, or "". If
// the last success can't be found out, Succeeded returns the reason, and no success.
func (o *Once) Succeeded(ctx context.Context, flag string) (*SucceededError, error) {
	if err := o.Repository.openStore(ctx); err != nil {
		return nil, err
	}
	seen, now, err := o.find(ctx, o.key())
	if err != nil || seen == nil {
		return nil, err
	}
	if now.IsZero() && flag != "" { // the store doesn't report its time
		own, _, err := o.find(ctx, flag)
		if err != nil {
			return nil, err
		}
		if own != nil {
			now = own.ModTime
		}
	}
	switch undated := now.IsZero() || seen.ModTime.IsZero(); {
	case undated && flag == "":
		return nil, errors.New("the store doesn't report how old it is, and there is no lock to compare it with")
	case undated:
		return nil, errors.New("the store doesn't report how old it is")
	}
	last := &SucceededError{Dated{At: seen.ModTime, Age: now.Sub(seen.ModTime)}, o.Period}
	switch {
	case last.Age < -ahead:
		return nil, fmt.Errorf("it is dated %s in the future", text.Duration(-last.Age))
	case last.Age >= o.Period:
		return nil, nil
	}
	last.Age = max(last.Age, 0)
	if last.Success, err = o.read(ctx, seen.Key); err != nil {
		return nil, err
	}
	return last, nil
}

// All returns the last successes of all jobs beside the lock. One that can't be read has the name in its key as its
// operation, and no holder. If the store doesn't answer, All returns the store's error. If the store doesn't report its
// time, the ages are by this machine's clock. All ignores names that no job has: files of other programs.
func (o *Once) All(ctx context.Context) (all []Dated, err error) {
	if err := o.Repository.openStore(ctx); err != nil {
		return nil, err
	}
	prefix := o.Place.Prefix() + folder
	for cursor := ""; ; {
		page, err := o.list(ctx, prefix, cursor)
		if err != nil {
			return nil, err
		}
		if page.Now.IsZero() {
			page.Now = clock.System{}.Now()
		}
		for _, object := range page.Objects {
			name := strings.TrimPrefix(object.Key, prefix)
			if strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
				continue
			}
			s, err := o.read(ctx, object.Key)
			switch {
			case err != nil && !errors.Is(err, errDamaged) && !store.Permanent(err):
				return nil, err
			case err != nil:
				s = Success{Operation: name}
			}
			all = append(all, Dated{s, object.ModTime, page.Now.Sub(object.ModTime)})
		}
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
}

func (o *Once) list(ctx context.Context, prefix, cursor string) (store.Page, error) {
	return asked(ctx, o, func(ctx context.Context) (store.Page, error) {
		return store.Finite(o.Repository.store).List(ctx, prefix, cursor)
	})
}

func (o *Once) read(ctx context.Context, key string) (s Success, err error) {
	body, err := asked(ctx, o, func(ctx context.Context) ([]byte, error) {
		body, _, err := o.Repository.store.Get(ctx, key, maxSuccess)
		return body, err
	})
	if err == nil && (json.Unmarshal(body, &s) != nil || s.Holder == "") {
		err = errDamaged
	}
	return s, err
}

var errDamaged = errors.New("it is damaged")

// find returns an object as a listing shows it, or nil if the key isn't listed, and the store's time.
func (o *Once) find(ctx context.Context, key string) (*store.Object, time.Time, error) {
	page, err := asked(ctx, o, func(ctx context.Context) (store.Page, error) {
		return store.PageOf(ctx, store.Finite(o.Repository.store), key)
	})
	if err != nil || len(page.Objects) == 0 || page.Objects[0].Key != key { // longer keys come after it
		return nil, page.Now, err
	}
	return &page.Objects[0], page.Now, nil
}

// put stores a success of the job.
func (o *Once) put(ctx context.Context, s Success) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = asked(ctx, o, func(ctx context.Context) (store.Object, error) {
		return o.Repository.store.Put(ctx, o.key(), body, store.PutOptions{Durable: true})
	})
	return err
}

// asked repeats a request as the lock does.
func asked[T any](ctx context.Context, o *Once, send func(context.Context) (T, error)) (T, error) {
	times := refresh.ForTTL(o.Repository.Options.TTL)
	p := retry.Policy{Clock: clock.System{}, Budget: times.Budget, Timeout: times.Timeout, Permanent: store.Permanent}
	return retry.Do(ctx, p, func(timeout time.Duration) (T, error) {
		v, _, err := retry.Once(ctx, timeout, send)
		return v, err
	})
}

// early is Succeeded without a lock. It is bounded by the time of one request, because the acquire reports a silent store.
func (o *Once) early(ctx context.Context) *SucceededError {
	ctx, cancel := context.WithTimeout(ctx, refresh.ForTTL(o.Repository.Options.TTL).Timeout)
	defer cancel()
	done, _ := o.Succeeded(ctx, "")
	return done
}

// acquireUnlessDone acquires the lock, unless the job has succeeded within its period. The look before the acquire saves
// the lock. The look under the lock decides, because another machine can have succeeded while we waited.
func (s *session) acquireUnlessDone(ctx context.Context) error {
	if s.Once == nil {
		return s.acquire(ctx)
	}
	if done := s.Once.early(ctx); done != nil {
		s.notAcquired(done)
		return done
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	done, doubt := s.Once.Succeeded(ctx, s.lock.About().Key)
	if doubt != nil && ctx.Err() == nil {
		s.say("warning: the job's last success isn't known, so the command runs: %s", Words(doubt, ""))
	}
	if done == nil {
		return nil
	}
	s.finish(events.Event{Success: true, Skipped: true})
	s.release()
	return done
}

// storeSuccess stores the success of the command, while the lock is certainly held. If that fails, the command has
// succeeded nevertheless.
func (s *session) storeSuccess(began time.Time) {
	if s.Once == nil {
		return
	}
	defer s.waitingFor("storing the success beside the lock")()
	about := s.lock.About()
	err, held := error(nil), s.leased()
	if held {
		err = s.Once.put(s.lock.Context(), Success{
			Operation: about.Operation, Job: s.Once.Job, Holder: identity.Self().Holder(), ID: about.ID,
			BeganAt: began.UTC(), SucceededAt: clock.System{}.Now().UTC(),
		})
	}
	if !held || err != nil && s.lock.Lost() != nil {
		err = fault.Errorf("%w", replock.ErrLost)
	}
	if err != nil {
		s.say("warning: the success can't be stored, so the next start runs the command again: %s", Words(err, ""))
	}
}
