// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net/netip"
	"strings"
)

// CheckAddress returns ErrForbidden, with the reason, for a host:port that Dial would refuse for
// what is written: an IP address, or localhost. Other names are admitted: what they mean is known
// when dialed.
func (g *Guard) CheckAddress(address string) error {
	if port, ok := strings.CutPrefix(strings.ToLower(address), "localhost:"); ok {
		address = "127.0.0.1:" + port
	}
	if _, err := netip.ParseAddrPort(address); err == nil {
		return g.control("", address, nil)
	}
	return nil
}
