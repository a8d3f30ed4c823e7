package fakeb2

import (
	"crypto/md5"
	"encoding/hex"
	"net/http"
	"time"
)

// file is a version as the API shows it.
func file(v Version) map[string]any {
	f := map[string]any{
		"accountId": account, "action": v.Action, "bucketId": v.Bucket, "contentLength": len(v.Body),
		"contentSha1": nil, "contentMd5": nil, "contentType": v.ContentType,
		"fileId": v.ID, "fileInfo": v.Info, "fileName": v.Name, "uploadTimestamp": v.Timestamp,
	}
	if v.Action == "upload" {
		md5 := md5.Sum(v.Body)
		f["contentSha1"], f["contentMd5"] = sum(v.Body), hex.EncodeToString(md5[:])
	}
	return f
}

func (s *Server) fileInfo(_ *http.Request, k Key, p params) (any, error) {
	b, v := s.state.version(p.FileID)
	if v == nil {
		return nil, refusal{http.StatusNotFound, "not_found", "file_state_none"}
	}
	if !k.inside(b, v.Name) {
		return nil, errUnauthorized
	}
	return file(*v), nil
}

func (s *Server) copyFile(_ *http.Request, k Key, p params) (any, error) {
	b, v := s.state.version(p.SourceFileID)
	if v == nil || v.Action != "upload" {
		return nil, refusal{http.StatusNotFound, "not_found", "no such source file"}
	}
	if !k.may("readFiles") || !k.inside(b, v.Name) || !k.inside(b, p.FileName) {
		return nil, errUnauthorized
	}
	if err := checkName(p.FileName); err != nil {
		return nil, err
	}
	next := *v
	next.Name = p.FileName
	next, err := s.state.newVersion(b, next, s.now())
	if err != nil {
		return nil, err
	}
	s.changed("b2_copy_file", b, next.Name)
	return file(next), nil
}

func (s *Server) hideFile(_ *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, p.FileName)
	if err != nil {
		return nil, err
	}
	switch versions := b.versions[p.FileName]; {
	case len(versions) == 0:
		return nil, refusal{http.StatusBadRequest, "no_such_file", "File not present: " + p.FileName}
	case versions[0].Action == "hide":
		return nil, refusal{http.StatusBadRequest, "already_hidden", "File already hidden: " + p.FileName}
	}
	v := Version{Name: p.FileName, Action: "hide", ContentType: "application/x-bz-hide-marker", Info: map[string]string{}}
	if v, err = s.state.newVersion(b, v, s.now()); err != nil {
		return nil, err
	}
	s.changed("b2_hide_file", b, v.Name)
	return file(v), nil
}

func (s *Server) deleteVersion(_ *http.Request, k Key, p params) (any, error) {
	b, v := s.state.version(p.FileID)
	if v == nil || v.Name != p.FileName {
		return nil, refusal{http.StatusBadRequest, "file_not_present", "File not present: " + p.FileName + " " + p.FileID}
	}
	if !k.inside(b, v.Name) {
		return nil, errUnauthorized
	}
	if b.FileLock && v.Action == "upload" && s.now().Before(time.UnixMilli(v.Timestamp).Add(b.Retain)) {
		return nil, refusal{http.StatusForbidden, "access_denied", "the file version is retained"}
	}
	if err := s.state.do(entry{DeleteVersion: &Version{ID: v.ID, Bucket: v.Bucket, Name: v.Name}}); err != nil {
		return nil, err
	}
	s.changed("b2_delete_file_version", b, p.FileName)
	return map[string]any{"fileId": p.FileID, "fileName": p.FileName}, nil
}
