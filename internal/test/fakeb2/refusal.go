package fakeb2

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// refusal is an error in the API's form.
type refusal struct {
	status  int
	code    string
	message string
}

func (e refusal) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.code, e.message) }

func badRequest(format string, args ...any) error {
	return refusal{http.StatusBadRequest, "bad_request", fmt.Sprintf(format, args...)}
}

var errUnauthorized = refusal{http.StatusUnauthorized, "unauthorized", "not authorized for this call with these parameters"}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) int {
	var e refusal
	if !errors.As(err, &e) {
		e = refusal{http.StatusInternalServerError, "internal_error", err.Error()}
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": e.status, "code": e.code, "message": e.message})
	return e.status
}

// reply answers with a result.
func reply(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	_, _ = w.Write(body)
	return nil
}
