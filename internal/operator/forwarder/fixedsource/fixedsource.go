// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fixedsource is a forwarder's source of objects that never change, so that a forwarder runs
// without a cluster.
package fixedsource

import (
	"context"
	"net/netip"

	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
)

// Source implements forwarder.Source with these objects.
type Source forwarder.Objects

// Watch reports the objects once and waits until ctx is done.
func (s Source) Watch(ctx context.Context, update func(forwarder.Objects)) error {
	update(forwarder.Objects(s))
	<-ctx.Done()
	return nil
}

// InEndpointSlices returns false: no EndpointSlice lists the forwarder.
func (Source) InEndpointSlices(context.Context, []netip.Addr) (bool, error) { return false, nil }

// NamespaceDeleted returns true, so that the forwarder stops without waiting for others to take its
// pods' calls over.
func (Source) NamespaceDeleted(context.Context) (bool, error) { return true, nil }
