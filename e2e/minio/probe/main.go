// Probe looks at a port of this machine: it stands beside the server in an image
// that has no other program.
//
//	probe ready ADDRESS   a MinIO server there is ready for requests
//	probe free ADDRESS    there is no listener
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: probe ready|free ADDRESS")
		os.Exit(64)
	}
	if err := look(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func look(verb, address string) error {
	switch verb {
	case "ready":
		client := http.Client{Timeout: 2 * time.Second}
		res, err := client.Get("http://" + address + "/minio/health/ready")
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s isn't ready: %s", address, res.Status)
		}
		return nil
	case "free":
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		return l.Close()
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
}
