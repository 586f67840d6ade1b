// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package e2e

import (
	"context"
	"errors"
	"net"
)

// listenerIn is for Linux only, as is a cluster of the suite's own.
func listenerIn(int) (func(ctx context.Context, addr string) (net.Listener, error), error) {
	return nil, errors.New("network namespaces need Linux: name a kubeconfig context in " + variableContext)
}
