package s3api

import "github.com/repolock/repolock/internal/text"

// deletion returns the command with which a person deletes an object whose key is invalid.
func (p Place) deletion(key string) string {
	command := "aws s3api delete-object"
	if p.Endpoint != "" {
		command += " --endpoint-url " + text.ShellWord(p.Endpoint)
	}
	return command + " --bucket " + text.ShellWord(p.Bucket) + " --key " + text.ShellWord(p.Prefix+key)
}
