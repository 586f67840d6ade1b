// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const (
	// accountName is the name of the quick start's account, and what tells its folder from the
	// folder of a server.
	accountName = "quickstart"
	// credentialDescription is of the credentials that every start makes anew.
	credentialDescription = "quick start"
	// forwarderTokenFile is the file in the folder from which the forwarder reads its authtoken.
	forwarderTokenFile = "forwarder-authtoken"
)

// secrets are the credentials of one start. They end with the next start in the same folder.
type secrets struct {
	apiKey        string // apiKey is for the person at the dashboard.
	agent         string // agent may bind the endpoint's URL.
	forwarderFile string // forwarderFile holds an authtoken that may connect for the operator.
	operatorID    string
}

// ensureAccount returns the quick start's account, which it makes in a store that is new. The service
// makes no credentials with all rights for a store that has an account.
func ensureAccount(ctx context.Context, st *store.Store, dir string) (id string, err error) {
	all, err := st.ListAccounts(ctx)
	switch {
	case err != nil:
		return "", err
	case len(all) == 0:
		made, err := st.CreateAccount(ctx, accountName)
		if err != nil {
			return "", err
		}
		return made.ID, nil
	case all[0].Name != accountName:
		return "", account.Invalid("--data-dir", dir,
			"holds the data of a server; name a new folder, or one of an earlier quick start")
	}
	return all[0].ID, nil
}

// makeSecrets makes the credentials, each with the rights that its user needs, and then deletes those
// of earlier starts.
func makeSecrets(ctx context.Context, st *store.Store, accountID, dir string) (made secrets, err error) {
	keys, err := st.AllAPIKeys(ctx, accountID)
	if err != nil {
		return made, err
	}
	tokens, err := st.AllAuthtokens(ctx, accountID)
	if err != nil {
		return made, err
	}
	operator, _, err := st.UpsertOperator(ctx, account.Operator{
		AccountID: accountID, Description: "the quick start's forwarder",
		EnabledFeatures: []string{account.FeatureBindings}, ClusterUID: accountName,
		Deployment: account.OperatorDeployment{Name: accountName, Namespace: accountName},
	})
	if err != nil {
		return made, err
	}
	made.operatorID, made.forwarderFile = operator.ID, filepath.Join(dir, forwarderTokenFile)
	_, made.apiKey, err = st.IssueAPIKey(ctx, accountID, credentialDescription,
		[]account.Scope{account.ScopeAdmin}, nil)
	if err != nil {
		return made, err
	}
	_, made.agent, err = st.IssueAuthtoken(ctx, accountID, credentialDescription, []string{"bind:" + endpointURL})
	if err != nil {
		return made, err
	}
	_, forwarder, err := st.IssueAuthtoken(ctx, accountID, credentialDescription, []string{"connect:" + operator.ID})
	if err != nil {
		return made, err
	}
	if err := os.WriteFile(made.forwarderFile, []byte(forwarder), 0o600); err != nil {
		return made, err
	}
	return made, deleteSecrets(ctx, st, account.Caller{AccountID: accountID}, keys, tokens)
}

// deleteSecrets deletes what earlier starts made of keys and tokens; what a person made stays.
func deleteSecrets(
	ctx context.Context, st *store.Store, by account.Caller, keys []account.APIKey, tokens []account.Authtoken,
) (err error) {
	for _, k := range keys {
		if k.Description == credentialDescription {
			err = errors.Join(err, st.DeleteAPIKey(ctx, by, k.ID))
		}
	}
	for _, t := range tokens {
		if t.Description == credentialDescription {
			err = errors.Join(err, st.DeleteAuthtoken(ctx, by, t.ID))
		}
	}
	return err
}
