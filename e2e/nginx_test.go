//go:build linux && minio && programs

package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/selfsigned"
	running "github.com/repolock/repolock/internal/test/server"
)

// TestNginx: behind a real nginx, with HTTP/2 and without it, locks of each kind are acquired, refused and
// released over HTTP/1.1, although nginx rewrites Accept-Encoding, which the AWS SDK signs if it may. Its certificate is of an IP address, by an unknown authority; without that authority
// nothing runs.
func TestNginx(t *testing.T) {
	for _, k := range kinds {
		for _, http2 := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", k.name, http2), func(t *testing.T) {
				t.Parallel()
				at := k.on(k.shared(t))
				upstream := at.Endpoint()
				if b2, ok := at.server.(fakeB2); ok { // its answers have URLs, of the scheme that it is asked by
					secure := httptest.NewTLSServer(b2.Server)
					t.Cleanup(secure.Close)
					upstream = secure.URL
				}
				front := startNginx(t, upstream, http2)
				s := at.site(t).at(strings.NewReplacer(at.host(), front.host, "http://", "https://", "?tls=false", "").Replace(at.repo()))
				s.start("backup", "--", "true").exits(78)
				for _, trust := range []string{"SSL_CERT_FILE", "AWS_CA_BUNDLE"} {
					if trust == "AWS_CA_BUNDLE" && k.name == "b2" {
						continue // it isn't Amazon's
					}
					s.env = []string{trust + "=" + front.authority}
					a, b := trust+"-a", trust+"-b"
					p := s.hold("backup", a)
					refused(s, "prune", p)
					p.end(a)
					s.hold("prune", b).end(b)
					s.nothingLeft()
				}
				front.spoke("HTTP/1.1")
			})
		}
	}
}

// nginx is an nginx in front of a server.
type nginx struct {
	t                    *testing.T
	host, authority, log string
}

func startNginx(t *testing.T, upstream string, http2 bool) nginx {
	t.Helper()
	dir := t.TempDir()
	n := nginx{t: t, host: fmt.Sprintf("127.0.0.1:%d", running.Port(t)), log: filepath.Join(dir, "access.log")}
	cert, key := selfsigned.Write(t, dir, "nginx")
	n.authority = cert
	also, encoding := "", "gzip"
	if http2 {
		also, encoding = " http2", `""`
	}
	s := &site{t: t, dir: dir}
	s.write("nginx.conf", fmt.Sprintf(`
		daemon off; master_process off; pid nginx.pid; error_log stderr;
		events {}
		http {
			log_format protocol $server_protocol;
			access_log access.log protocol;
			client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
			server {
				listen %s ssl%s;
				ssl_certificate %s;
				ssl_certificate_key %s;
				location = /probe { access_log off; return 204; }
				location / { proxy_pass %s; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Accept-Encoding %s; }
			}
		}`, n.host, also, cert, key, upstream, encoding))
	probe := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer probe.CloseIdleConnections()
	process, err := running.Start(exec.Command("nginx", "-p", dir, "-c", "nginx.conf"), func() bool {
		res, err := probe.Get("https://" + n.host + "/probe")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		assert.That(t, (res.ProtoMajor == 2) == http2, "nginx speaks %s with a client that prefers HTTP/2", res.Proto)
		return true
	})
	assert.OK(t, err)
	t.Cleanup(func() { process.End(syscall.SIGTERM) })
	return n
}

// spoke checks the protocol of all requests.
func (n nginx) spoke(protocol string) {
	n.t.Helper()
	lines := strings.Fields(read(n.t, n.log))
	i := slices.IndexFunc(lines, func(l string) bool { return l != protocol })
	assert.That(n.t, i < 0 && len(lines) != 0, "%d requests; not all are of %s: %q", len(lines), protocol, lines[max(i, 0):])
}
