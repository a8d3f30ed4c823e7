package s3api

import "github.com/repolock/repolock/store/internal/httptransport"

// deletion returns the command with which a person deletes an object whose key is invalid.
func (p Place) deletion(key string) string {
	command := "aws s3api delete-object"
	if p.Endpoint != "" {
		command += " --endpoint-url " + httptransport.Quote(p.Endpoint)
	}
	return command + " --bucket " + httptransport.Quote(p.Bucket) + " --key " + httptransport.Quote(p.Prefix+key)
}
