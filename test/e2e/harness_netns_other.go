// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package e2e

import (
	"context"
	"errors"
	"net"
)

// netNS is for Linux only, as is a cluster of the suite's own.
type netNS struct{}

func openNetNS(int) (*netNS, error) {
	return nil, errors.New("network namespaces need Linux: name a kubeconfig context in " + variableContext)
}

func (*netNS) dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func (*netNS) listen(context.Context, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}
