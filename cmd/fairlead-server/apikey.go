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
		Scopes: append([]account.Scope{}, k.Scopes...), CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt,
		LastUsedAt: k.LastUsedAt}
}

func newAPIKey(c console, at *dataLocation) *cobra.Command {
	var scopes []string
	create := &cobra.Command{
		Short: "Make an API key",
		Long: `Make an API key. Its scopes are what it may do:
  admin      everything (the default)
  read       read everything
  operator   read and watch endpoints, register operators: what fairlead-operator needs
  identities read and revoke the identities that logged in, and their sessions, and nothing else`,
		Example: `  fairlead-server api-key create --scope operator --description "cluster eu-1"
  KEY=$(fairlead-server api-key create --scope read --expires 720h)`,
	}
	create.Flags().StringSliceVar(&scopes, "scope", nil,
		"`SCOPE` of the key: admin, read, operator or identities; may be repeated; default admin")
	return newCredentialGroup(c, at, "api-key", "Make, list and delete API keys", credentialKind{
		title: "API key", noun: "key", rulesHeading: "SCOPES", rulesPrefix: "for",
		deleteEffect: "when the command returns, the key is refused", exampleID: "ak-06gvhcq2s01qv18avutpa9ljkg",
		createCommand: create,
		create: func(ctx context.Context, st *store.Store, n newCredential) (credentialJSON, error) {
			list := make([]account.Scope, len(scopes))
			for i, s := range scopes {
				list[i] = account.Scope(s)
			}
			key, secret, err := st.IssueAPIKey(ctx, n.accountID, n.description, list, n.expiresAt)
			if err != nil {
				return credentialJSON{}, err
			}
			return apiKeyToJSON(*key, secret), nil
		},
		list: func(ctx context.Context, st *store.Store, accountID string) ([]credentialJSON, error) {
			keys, err := st.AllAPIKeys(ctx, accountID)
			return convert(keys, func(k account.APIKey) credentialJSON { return apiKeyToJSON(k, "") }), err
		},
		delete: func(ctx context.Context, st *store.Store, by account.Caller, id string) error {
			return st.DeleteAPIKey(ctx, by, id)
		},
	})
}
