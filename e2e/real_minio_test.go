//go:build unix && minio

package e2e

import (
	"slices"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

func TestRealOnMinIO(t *testing.T) {
	onEach(t, onMinIOs, func(t *testing.T, k kind) {
		p := k.on(k.own(t))
		other := onMinIOs[1-slices.IndexFunc(onMinIOs, func(o kind) bool { return o.name == k.name })]
		p.site(t).real(p.repo(), "STORE2="+other.url(p.host(), p.bucket))
		assert.That(t, slices.Equal(p.left(), nil), "%q is left", p.left())
	})
}
