package proxy

import "testing"

func TestNames(t *testing.T) {
	for _, c := range []struct{ method, path, body, name, op, key string }{
		{"PUT", "/bucket/index/lock.exclusive", "x", "", "put", "index/lock.exclusive"},
		{"GET", "/bucket/a%20b?x=1", "", "", "get", "a b"},
		{"HEAD", "/bucket/a", "", "", "head", "a"},
		{"DELETE", "/bucket/a", "", "", "delete", "a"},
		{"POST", "/bucket/?delete=", "<Delete/>", "", "delete all", ""},
		{"POST", "/bucket/a?uploads", "", "", "other", "a"},
		{"DELETE", "/bucket/a?versionId=1", "", "", "other", "a"},
		{"GET", "/bucket/?list-type=2&prefix=index%2Flock.", "", "", "list", "index/lock."},
		{"GET", "/bucket?list-type=2&prefix=i", "", "", "list", "i"},
		{"GET", "/bucket/?location", "", "", "other", ""},
		{"GET", "/b2api/v2/b2_authorize_account", "", "", "b2_authorize_account", ""},
		{"POST", "/b2api/v2/b2_list_file_names", `{"prefix":"index/lock."}`, "", "b2_list_file_names", "index/lock."},
		{"POST", "/b2api/v2/b2_hide_file", `{"fileName":"a"}`, "", "b2_hide_file", "a"},
		{"POST", "/b2api/v2/b2_upload_file/bucket/7", "x", "a%20b/c", "b2_upload_file", "a b/c"},
		{"GET", "/file/bucket/a%20b/c", "", "", "b2_download_file_by_name", "a b/c"},
	} {
		f := newFixture(t, "")
		if _, _, err := f.do(c.method, c.path, c.body, "X-Bz-File-Name", c.name); err != nil {
			t.Fatal(err)
		}
		f.do(c.method, c.path, c.body, "X-Bz-File-Name", c.name)
		log := f.Take()
		for i, e := range log {
			if e.Op != c.op || e.Key != c.key || e.N != i+1 || e.Status != 200 {
				t.Errorf("%s %s: %s, want %s %q #%d", c.method, c.path, e, c.op, c.key, i+1)
			}
		}
		if len(log) != 2 {
			t.Errorf("%d requests are in the log", len(log))
		}
	}
}
