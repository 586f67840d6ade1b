// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package e2e

import (
	"context"
	"errors"
	"net"
)

// dialerIn is for Linux only, as is a cluster of the suite's own.
func dialerIn(int) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	return nil, errors.New("network namespaces need Linux: name a kubeconfig context in " + variableContext)
}
