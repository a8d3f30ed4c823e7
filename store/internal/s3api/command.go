package s3api

import "github.com/repolock/repolock/store/internal/web"

// deletion is the command with which a person deletes what has a key that we take for none.
func (p Place) deletion(key string) string {
	command := "aws s3api delete-object"
	if p.Endpoint != "" {
		command += " --endpoint-url " + web.Quote(p.Endpoint)
	}
	return command + " --bucket " + web.Quote(p.Bucket) + " --key " + web.Quote(p.Prefix+key)
}
