// Roots prints the certificate authorities that Mozilla trusts, in PEM: those of the
// container image. Their version is the one that go.sum pins, and not whatever the
// machine that builds the image happens to have.
package main

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	for root := range bundle.Roots() {
		// Trusted up to a date, or for some names alone, which PEM can't say: rather
		// trusted for nothing.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			fail(err)
		}
	}
	if err := out.Flush(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "roots:", err)
	os.Exit(1)
}
