// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestGuard_ChecksWrittenAddresses(t *testing.T) {
	t.Parallel()
	allow, err := ParseAllow("--static-allow", []string{"10.1.0.0/16", "fd00::/8"})
	must.Succeed(t, err)
	g := &Guard{Allow: allow}
	for address, admitted := range map[string]bool{
		"10.0.0.1:80": false, "10.1.0.1:80": true, "127.0.0.1:80": false, "Localhost:80": false, "[::1]:80": false,
		"[fd00::1]:80":         true,
		"[::ffff:10.0.0.1]:80": false, "169.254.169.254:80": false, "8.8.8.8:53": true, "db.example.com:5432": true,
		"nonsense": true,
	} {
		if err := g.CheckAddress(address); (err == nil) != admitted || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
