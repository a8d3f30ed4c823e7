// Command serve runs the fake of Backblaze's API until it is killed:
//
//	serve -listen 127.0.0.1:9000 -file state -bucket a-bucket
//
// Its key is the one in B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY, which may do everything. What is
// stored is in the file, so that a server that was killed goes on where it was. It says "ready" when it
// listens.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/repolock/repolock/internal/test/fakeb2"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run() error {
	opts := fakeb2.Options{Keys: []fakeb2.Key{{ID: os.Getenv("B2_APPLICATION_KEY_ID"), Secret: os.Getenv("B2_APPLICATION_KEY")}}}
	var buckets []string
	listen := flag.String("listen", "127.0.0.1:0", "loopback `address`")
	flag.StringVar(&opts.File, "file", "", "`path` of the state; in memory if empty")
	flag.Func("bucket", "`name` of a bucket that there is", func(name string) error {
		buckets = append(buckets, name)
		return nil
	})
	flag.Parse()

	s, err := fakeb2.New(opts)
	if err != nil {
		return err
	}
	for _, name := range buckets {
		if err := s.AddBucket(fakeb2.Bucket{Name: name}); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("ready", l.Addr())
	return http.Serve(l, s.Control())
}
