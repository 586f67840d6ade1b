// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeaddr finds TCP addresses for servers that tests and benchmarks start. Another process
// may take the address before the server listens; closedport reserves addresses that must refuse.
package freeaddr

import (
	"context"
	"net"
)

// Find returns a loopback address with a free port.
func Find() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
