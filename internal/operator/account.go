// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// newAccountClients returns the clients of the account's API that the controllers use.
func newAccountClients(o ManagerOptions) (endpointsync.Source, registration.Registrar, error) {
	if o.Account != nil {
		return o.Account, o.Registrar, nil
	}
	tls, err := trust.Options{CAFile: o.CAFile}.ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the authorities to trust for the account's API: %w", err)
	}
	api, err := apiclient.New(apiclient.Options{
		BaseURL: o.APIURL, APIKey: readKey(o.APIKeyFile), TLS: tls, VersionHeader: o.VersionHeader,
		UserAgent: "fairlead-operator/" + version.String(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("preparing the client of the account: %w", err)
	}
	return accountSource{api}, registrar{api}, nil
}

// readKey returns a function that reads the key for every request, so that a rotated one needs no
// restart.
func readKey(file string) func() (string, error) {
	return func() (string, error) {
		b, err := os.ReadFile(file)
		return string(b), err
	}
}

// accountSource reads the account's kubernetes-bound endpoints.
type accountSource struct{ api *apiclient.Client }

func kubernetesEndpoints() account.EndpointFilter {
	return account.EndpointFilter{Bindings: []string{account.BindingKubernetes}}
}

// List implements endpointsync.Source.
func (s accountSource) List(ctx context.Context) (endpointsync.Snapshot, error) {
	list, err := s.api.ListEndpoints(ctx, kubernetesEndpoints())
	if err != nil {
		return endpointsync.Snapshot{}, err
	}
	return endpointsync.Snapshot{Endpoints: list.Endpoints, Version: list.Version, AccountID: list.AccountID,
		StoreID: list.StoreID}, nil
}

// Watch implements endpointsync.Source.
func (s accountSource) Watch(ctx context.Context, after account.ResourceVersion) (endpointsync.Watcher, error) {
	w, err := s.api.WatchEndpoints(ctx, kubernetesEndpoints(), after)
	if errors.Is(err, apiclient.ErrWatchUnsupported) {
		return nil, endpointsync.ErrWatchUnsupported
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// registrar registers the installation.
type registrar struct{ api *apiclient.Client }

// UpsertOperator implements registration.Registrar.
func (r registrar) UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, error) {
	registered, _, err := r.api.UpsertOperator(ctx, o)
	return registered, err
}
