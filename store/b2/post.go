package b2

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

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
