// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

func apiKeyToJSON(k account.APIKey, secret string) credentialJSON {
	return credentialJSON{ID: k.ID, Secret: secret, Description: k.Description,
		Scopes: append([]account.Scope{}, k.Scopes...), ACL: k.ACL, ClusterUID: k.ClusterUID, CreatedAt: k.CreatedAt,
		ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt}
}

const apiKeyHelp = `Make an API key. Its scopes are what it may do:
  admin      everything (the default)
  read       read everything
  operator   read and watch endpoints, register operators: what fairlead-operator needs
  identities read and revoke the identities that logged in, and their sessions, and nothing else
  exporter   bind and keep the endpoints of one cluster's AgentEndpoints and CloudEndpoints: the
             only secret that fairlead-operator exporter needs; it goes with no other scope

A key with the scope exporter belongs to one cluster: the one of --cluster-uid, else the first that
presents it. Its rules are what it may do:
  export:<namespace>/<name>  make endpoints of such objects
  bind:<url pattern>         under such URLs
  backend:<id>               forward to such backends
  internal:<host>            forward to such internal endpoints
"*" stands for any run of characters. Without --acl they are export:* and bind:*.`

// apiKeys are the API keys. The fields are flags of their creation.
type apiKeys struct {
	scopes, acl []string
	clusterUID  string
}

func newAPIKey(c console, at *dataLocation) *cobra.Command {
	keys := &apiKeys{}
	create := &cobra.Command{
		Short: "Make an API key",
		Long:  apiKeyHelp,
		Example: `  fairlead-server api-key create --scope operator --description "cluster eu-1"
  KEY=$(fairlead-server api-key create --scope read --expires 720h)
  fairlead-server api-key create --scope exporter --acl 'export:team-a/*' --acl 'bind:http://*.team-a' \
    --cluster-uid "$(kubectl get namespace kube-system -o jsonpath={.metadata.uid})"`,
	}
	create.Flags().StringSliceVar(&keys.scopes, "scope", nil,
		"`SCOPE` of the key: admin, read, operator, identities or exporter; may be repeated; default admin")
	create.Flags().StringArrayVar(&keys.acl, "acl", nil,
		"`RULE` of a key with the scope exporter; may be repeated; default export:* and bind:*")
	create.Flags().StringVar(&keys.clusterUID, "cluster-uid", "",
		"`UID` of the namespace kube-system of the cluster that a key with the scope exporter belongs to; default the "+
			"first that presents it")
	return newCredentialGroup(c, at, "api-key", "Make, list and delete API keys", credentialKind{
		title: "API key", noun: "key", headings: []string{"SCOPES", "RULES", "CLUSTER"}, rightsPrefix: "for",
		deleteEffect: "when the command returns, the key is refused", exampleID: "ak-06gvhcq2s01qv18avutpa9ljkg",
		createCommand: create, credentials: keys,
	})
}

func (a *apiKeys) create(ctx context.Context, st *store.Store, n newCredential) (credentialJSON, error) {
	p := account.APIKeyPatch{Description: &n.description, ClusterUID: &a.clusterUID,
		Expiry: account.ExpiryPatch{Set: true, At: n.expiresAt}}
	if len(a.scopes) > 0 {
		p.Scopes = new(convert(a.scopes, func(s string) account.Scope { return account.Scope(s) }))
	}
	if len(a.acl) > 0 {
		p.ACL = &a.acl
	}
	key, err := st.CreateAPIKey(ctx, account.Caller{AccountID: n.accountID}, p)
	if err != nil {
		return credentialJSON{}, err
	}
	return apiKeyToJSON(*key, *key.Token), nil
}

func (*apiKeys) list(ctx context.Context, st *store.Store, accountID string) ([]credentialJSON, error) {
	keys, err := st.AllAPIKeys(ctx, accountID)
	return convert(keys, func(k account.APIKey) credentialJSON { return apiKeyToJSON(k, "") }), err
}

func (*apiKeys) delete(ctx context.Context, st *store.Store, by account.Caller, id string) error {
	return st.DeleteAPIKey(ctx, by, id)
}
