// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/keyhandover"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// accountClients are what the controllers use of the account's API.
type accountClients struct {
	endpointsync.Source
	registration.Registrar
	keys        *keyhandover.Handover // nil: the account is not called with a ServiceAccount token
	authorities *trust.Authorities    // authorities learns what the service announces.
}

func newAccountClients(o settings, log logr.Logger) (accountClients, error) {
	if o.Account != nil {
		return accountClients{Source: o.Account, Registrar: o.Registrar}, nil
	}
	api, made, err := o.Client("fairlead-operator", o.Credentials.Open(o.Logger))
	if err != nil {
		return accountClients{}, err
	}
	clients := accountClients{Registrar: registrar{api}, authorities: made.Authorities,
		Source: &endpointsync.AccountSource{API: api, Clusterset: o.Clusterset}}
	if o.ServiceAccountTokenFile != "" {
		clients.keys, err = keyhandover.New(clientConfig(o.Kubernetes), made,
			serviceaccounttoken.New(o.ServiceAccountTokenFile, o.Logger), log)
	}
	return clients, err
}

// registrar registers the installation.
type registrar struct{ api *apiclient.Client }

// UpsertOperator implements registration.Registrar.
func (r registrar) UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, error) {
	registered, _, err := r.api.UpsertOperator(ctx, o)
	return registered, err
}
