package b2

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// note has the facts of an exchange that blazer doesn't return. It is in the context of each.
type note struct {
	// err is the reason that there was no answer. blazer keeps only its text.
	err error
	// answered: there was one, even if it broke off.
	answered atomic.Bool
	refusal  refusal
	// token was sent. The answer might quote it.
	token string
	// auth is the answer to an authorization, which blazer doesn't return.
	auth authorization
	// bucket, if it is set, answers b2_list_buckets without asking the server:
	// blazer has no other way to make a bucket, and a key that is restricted to
	// one needn't have the permission to list it.
	bucket *bucketInfo
}

// authorization is the answer of b2_authorize_account, version 4.
type authorization struct {
	Token   string `json:"authorizationToken"`
	APIInfo struct {
		Storage struct {
			URL         string `json:"apiUrl"`
			DownloadURL string `json:"downloadUrl"`
			Allowed     struct {
				Buckets []struct {
					ID   string `json:"id"`
					Name string `json:"name"` // empty once the bucket is gone
				} `json:"buckets"` // none if the key isn't restricted to some
				Prefix       string   `json:"namePrefix"`
				Capabilities []string `json:"capabilities"`
			} `json:"allowed"`
		} `json:"storageApi"`
	} `json:"apiInfo"`
	AccountID string `json:"accountId"`
}

type bucketInfo struct {
	ID   string `json:"bucketId"`
	Name string `json:"bucketName"`
}

type noteKey struct{}

// noteOf returns the note of a context, or one that nothing reads.
func noteOf(ctx context.Context) *note {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		return n
	}
	return new(note)
}

// transport keeps notes of what goes through it.
type transport struct{ next http.RoundTripper }

// maxAnswer is larger than a page of the longest names.
const maxAnswer = 32 << 20

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	n := noteOf(r.Context())
	n.token = r.Header.Get("Authorization")
	res, err := t.roundTrip(r, n)
	n.err = err
	return res, err
}

func (t *transport) roundTrip(r *http.Request, n *note) (*http.Response, error) {
	if !secure(r.URL) {
		return nil, fmt.Errorf("%w: the server wants the application key to be sent in the clear", store.ErrConfig)
	}
	if n.bucket != nil && strings.HasSuffix(r.URL.Path, "/b2_list_buckets") {
		return known(r, n.bucket)
	}
	authorizes := r.URL.Path == "/b2api/v3/b2_authorize_account"
	if authorizes {
		r = r.Clone(r.Context())
		r.URL.Path = pathAuthorize
	}
	res, err := t.next.RoundTrip(httptransport.Begun(r, func() { n.answered.Store(true) }))
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(r.URL.Path, "/b2api/") {
		body := res.Body
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(body, maxAnswer), body}
	}
	if authorizes {
		return n.authorized(res)
	}
	return res, nil
}

// pathAuthorize is in the fourth version of the API, while blazer asks for the third, which
// refuses keys that were made by the fourth. The answer has what blazer reads, and its token
// is good for the third version of the other calls, which are the same in both.
const pathAuthorize = "/b2api/v4/b2_authorize_account"

// known answers b2_list_buckets with the bucket from the authorization.
func known(r *http.Request, b *bucketInfo) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"buckets": []any{b}})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// authorized parses the answer to an authorization. It is the first answer of a server, and
// so shows whether the server is B2 at all, which blazer doesn't check.
func (n *note) authorized(res *http.Response) (*http.Response, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	var problem struct {
		Code string `json:"code"`
	}
	err = json.Unmarshal(body, &problem)
	switch {
	case httptransport.Passing(res.StatusCode):
		return res, nil
	case res.StatusCode != http.StatusOK && err == nil && problem.Code != "":
		return res, nil
	case res.StatusCode == http.StatusOK:
		err = json.Unmarshal(body, &n.auth)
		if storage := n.auth.APIInfo.Storage; err == nil && n.auth.Token != "" && storage.URL != "" && storage.DownloadURL != "" && len(storage.Allowed.Capabilities) > 0 {
			return res, nil
		}
	}
	return nil, fmt.Errorf("%w: the endpoint %s isn't Backblaze B2: it doesn't answer as B2 does (%s)", store.ErrConfig, res.Request.URL.Host, res.Status)
}

// post makes a call for which blazer has no function.
func (s *Store) post(ctx context.Context, in *session, name string, params, result any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, in.APIInfo.Storage.URL+"/b2api/v3/"+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", in.Token)
	r.Header.Set("Content-Type", "application/json")
	res, err := s.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		if result == nil {
			return nil
		}
		return json.NewDecoder(res.Body).Decode(result)
	}
	var said struct{ Code, Message string }
	_ = json.NewDecoder(res.Body).Decode(&said)
	return noteOf(ctx).refuse(res.StatusCode, said.Code, said.Message, in.Token)
}
