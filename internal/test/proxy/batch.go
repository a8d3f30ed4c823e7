package proxy

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
)

var objectInBatch = regexp.MustCompile(`(?s)<Object>.*?</Object>`)

// batchKeys returns the keys in the body of DeleteObjects.
func batchKeys(body []byte) (keys []string) {
	var d struct{ Object []struct{ Key string } }
	_ = xml.Unmarshal(body, &d)
	for _, o := range d.Object {
		keys = append(keys, o.Key)
	}
	return keys
}

// bendBatch takes each third key out of DeleteObjects, if that is the server's quirk.
func (q Request) bendBatch(quirks Quirks) Request {
	if q.Op != "delete all" || !quirks.Forgetful && !quirks.Partial {
		return q
	}
	n := 0
	var left strings.Builder
	q.Body = objectInBatch.ReplaceAllFunc(q.Body, func(object []byte) []byte {
		if n++; n%3 != 0 {
			return object
		}
		if quirks.Partial {
			for _, key := range batchKeys([]byte("<Delete>" + string(object) + "</Delete>")) {
				fmt.Fprintf(&left, "<Error><Key>%s</Key><Code>InternalError</Code><Message>as the test wants</Message></Error>", key)
			}
		}
		return nil
	})
	q.left = left.String()
	sum := md5.Sum(q.Body)
	q.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	for name := range q.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") {
			q.Header.Del(name)
		}
	}
	return q
}
