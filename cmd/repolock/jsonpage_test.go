package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestJSONPage: docs/json.md has every field of a lock, of an error and of status.
func TestJSONPage(t *testing.T) {
	raw, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	var check func(reflect.Type)
	fields := 0
	check = func(of reflect.Type) {
		for field := range of.Fields() {
			if field.Anonymous {
				check(field.Type)
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields++
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s of %v isn't there", name, of)
			}
		}
	}
	for _, v := range []any{jsonLock{}, jsonError{}, jsonStatus{}} {
		check(reflect.TypeOf(v))
	}
	if fields < 30 {
		t.Errorf("only %d fields were looked for", fields)
	}
}
