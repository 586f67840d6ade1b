// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// bindOwner returns the owner of a bind, or nil. Its cluster is that of the session's credential: a
// session never states one.
func (t *session) bindOwner(b tunnel.Bind) (*account.Owner, error) {
	switch {
	case t.clusterUID == "" && (b.Owner != nil || b.Binding == account.BindingClusterset):
		return nil, errNoOwner(t.credentialID)
	case b.Owner == nil:
		return nil, nil
	}
	return &account.Owner{Cluster: t.clusterUID, Kind: b.Owner.Kind, Namespace: b.Owner.Namespace, Name: b.Owner.Name,
		UID: b.Owner.UID}, nil
}

func errNoOwner(credentialID string) *account.Error {
	return account.Errorf(account.CodeScope,
		"authtoken %s cannot bind endpoints of Kubernetes objects: an exporter needs "+
			"an API key with scope exporter, of its cluster", credentialID)
}
