// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net/netip"
	"strings"
)

// CheckAddress returns ErrForbidden, with the reason, for a host:port that Dial refuses without
// resolving it: an IP address, or localhost. Other names are accepted here and checked when dialed.
func (g *Guard) CheckAddress(address string) error {
	if port, ok := strings.CutPrefix(strings.ToLower(address), "localhost:"); ok {
		address = "127.0.0.1:" + port
	}
	if _, err := netip.ParseAddrPort(address); err == nil {
		return g.control("", address, nil)
	}
	return nil
}
