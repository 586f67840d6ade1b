// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/keyhandover"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
)

// accountClients are what the controllers use of the account's API.
type accountClients struct {
	endpointsync.Source
	registration.Registrar
	keys *keyhandover.Handover // nil: the account is not called with a ServiceAccount token
}

func newAccountClients(o settings, log logr.Logger) (accountClients, error) {
	if o.Account != nil {
		return accountClients{Source: o.Account, Registrar: o.Registrar}, nil
	}
	api, made, err := o.Client("fairlead-operator", o.Credentials.Open(o.Logger))
	if err != nil {
		return accountClients{}, err
	}
	clients := accountClients{Source: &accountSource{api: api, clusterset: o.Clusterset}, Registrar: registrar{api}}
	if o.ServiceAccountTokenFile != "" {
		clients.keys, err = keyhandover.New(clientConfig(o.Kubernetes), made,
			serviceaccounttoken.New(o.ServiceAccountTokenFile, o.Logger), log)
	}
	return clients, err
}

// accountSource reads the account's kubernetes-bound endpoints, and with clusterset what clusters
// export. It is used by one goroutine.
type accountSource struct {
	api        *apiclient.Client
	clusterset bool
	// withoutClusterset reports that the latest list is one without account.BindingClusterset,
	// which the server does not know, and watchRefused that a watch since then has found that out.
	withoutClusterset, watchRefused bool
}

// List implements endpointsync.Source. A server that refuses account.BindingClusterset is asked
// without it. While the servers behind one address are updated, some know it and others do not: the
// list that follows a refused watch is one without it.
func (s *accountSource) List(ctx context.Context) (endpointsync.Snapshot, error) {
	ask := s.clusterset && !s.watchRefused
	s.watchRefused = false
	if ask {
		snapshot, err := s.list(ctx, account.BindingKubernetes, account.BindingClusterset)
		if !isRefused(err) {
			s.withoutClusterset = false
			return snapshot, err
		}
	}
	snapshot, err := s.list(ctx, account.BindingKubernetes)
	s.withoutClusterset = s.clusterset
	snapshot.WithoutClusterset = s.withoutClusterset
	return snapshot, err
}

func (s *accountSource) list(ctx context.Context, bindings ...string) (endpointsync.Snapshot, error) {
	list, err := s.api.ListEndpoints(ctx, account.EndpointFilter{Bindings: bindings})
	if err != nil {
		return endpointsync.Snapshot{}, err
	}
	return endpointsync.Snapshot{Endpoints: list.Endpoints, Version: list.Version, AccountID: list.AccountID,
		StoreID: list.StoreID}, nil
}

// Watch implements endpointsync.Source: it watches what the latest list had.
func (s *accountSource) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	bindings := []string{account.BindingKubernetes}
	ask := s.clusterset && !s.withoutClusterset
	if ask {
		bindings = append(bindings, account.BindingClusterset)
	}
	w, err := s.api.WatchEndpoints(ctx, account.EndpointFilter{Bindings: bindings}, after)
	if err != nil {
		s.watchRefused = ask && isRefused(err)
		return nil, err
	}
	return w, nil
}

// isRefused reports whether the server answered that the request is wrong.
func isRefused(err error) bool {
	var e *account.Error
	return errors.As(err, &e) && e.HTTPStatus() == http.StatusBadRequest
}

// registrar registers the installation.
type registrar struct{ api *apiclient.Client }

// UpsertOperator implements registration.Registrar.
func (r registrar) UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, error) {
	registered, _, err := r.api.UpsertOperator(ctx, o)
	return registered, err
}
