// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeaddr finds TCP addresses for servers that tests and benchmarks start. Another caller may
// be given the same one before the server listens, which is rare; closedport reserves addresses that
// must refuse.
package freeaddr

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Find returns no port that the system gives to connections by itself, 32768 and more: another test's
// connection could be given it before the server listens.
const (
	firstPort = 2000
	lastPort  = 9999
	attempts  = 100
)

// Find returns a loopback address with a free port.
func Find() (string, error) {
	var errs []error
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp",
			net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
