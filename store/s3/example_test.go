package s3_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
)

// A program that has a client of the AWS SDK passes it to New. Other programs call Open.
func ExampleNew() {
	ctx := context.Background()
	server := httptest.NewServer(fakes3.New("backups")) // in place of a real server
	defer server.Close()
	client := awss3.New(awss3.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(server.URL), // nil is Amazon
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider("key", "secret", ""),
		HTTPClient:   s3.HTTPClient(), // with short timeouts
	})
	s, err := s3.New(client, "backups", s3.Options{Prefix: "nightly"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Properties().IfAbsent) // other servers than Amazon's might ignore the condition
	_, err = s.Put(ctx, "jobs/a", []byte("done"), store.PutOptions{IfAbsent: true})
	fmt.Println(err)
	fmt.Println(store.Keys(ctx, s, "jobs/"))
	// Output:
	// claimed
	// <nil>
	// [jobs/a] <nil>
}
