package s3api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// unanswered returns the meaning of a request without an answer. It might have been
// carried out.
func (s *Store) unanswered(r request, err error) error {
	var (
		record     tls.RecordHeaderError
		authority  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		invalid    x509.CertificateInvalidError
		transport  *url.Error
		connection *net.OpError
		proxy      *httptransport.ProxyError
	)
	noHost := httptransport.NoHost(err)
	switch {
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w: %s speaks no TLS: %s", store.ErrConfig, s.place.Host, s.place.PlainHint)
	case strings.Contains(err.Error(), tlsAlert):
		return fmt.Errorf("%w: %s wants TLS: write https:// in endpoint=, or leave out tls=false", store.ErrConfig, s.place.Host)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: the certificate of %s isn't to be trusted: %s: have its authority trusted by this machine, or named by AWS_CA_BUNDLE",
			store.ErrConfig, s.place.Host, Innermost(err))
	case errors.As(err, &hostname), errors.As(err, &invalid):
		return fmt.Errorf("%w: the certificate of %s isn't to be trusted: %s", store.ErrConfig, s.place.Host, Innermost(err))
	case errors.As(err, &connection) && connection.Op == "remote error", strings.HasPrefix(Innermost(err).Error(), "tls: "):
		return fmt.Errorf("%w: no TLS with %s: %s", store.ErrConfig, s.place.Host, Innermost(err))
	case noHost != nil:
		return noHost
	case errors.As(err, &proxy):
		err = fmt.Errorf("%s: %w", s.place.Host, proxy)
	case errors.As(err, &connection):
		err = fmt.Errorf("%s: %w", s.place.Host, connection)
	case errors.As(err, &transport):
		err = fmt.Errorf("%s: %w", s.place.Host, transport.Err)
	default:
		err = fmt.Errorf("%s: %w", s.place.Host, Innermost(err))
	}
	if r.answer.Silence() {
		return store.Unreachable(err)
	}
	return err
}

// tlsAlert is in net/http's error for the answer of most servers that need TLS to a
// request without it: an alert, which is type 21 of version 3.
const tlsAlert = `malformed HTTP response "\x15\x03`

// Innermost returns the last of a chain of errors: those of the libraries are long.
func Innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
