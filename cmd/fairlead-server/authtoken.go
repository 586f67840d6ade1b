// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

func authtokenToJSON(a account.Authtoken, secret string) credentialJSON {
	return credentialJSON{ID: a.ID, Secret: secret, Description: a.Description, ACL: append([]string{}, a.ACL...),
		CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt, LastUsedAt: a.LastUsedAt}
}

// authtokens are the authtokens. The fields are flags of their creation.
type authtokens struct{ acl, connect []string }

func newAuthtoken(c console, at *dataLocation) *cobra.Command {
	tokens := &authtokens{}
	create := &cobra.Command{
		Short: "Make an authtoken",
		Long: `Make an authtoken. Its rules are what it may do:
  bind:<url pattern>       an agent may bind such URLs, for example bind:http://*.demo
  bind:<label>=<value>     a labelled tunnel may have this label, for example bind:app=*;
                           each label of a tunnel needs a rule
  connect:<id pattern>     a forwarder may act for such operators
  connect:<url pattern>    fairlead connect may call such endpoints, for example connect:http://*.demo
"*" stands for any run of characters. Without --acl and --connect the token may bind every URL and
label (bind:*) and not connect.`,
		Example: `  fairlead-server authtoken create --description "alice's laptop"
  fairlead-server authtoken create --acl 'bind:http://*.staging' --acl 'bind:tcp://*.staging:*'
  fairlead-server authtoken create --connect '*' --description "operators"
  fairlead-server authtoken create --connect 'http://*.demo' --description "alice, fairlead connect"
  fairlead-server authtoken create --expires 24h --description "a guest"`,
	}
	create.Flags().StringArrayVar(&tokens.acl, "acl", nil,
		"`RULE` of the token; may be repeated; default bind:*, or none with --connect")
	create.Flags().StringArrayVar(&tokens.connect, "connect", nil,
		"`PATTERN` of operator ids that a forwarder may act for, or of URLs that fairlead connect may call, short for "+
			"--acl connect:PATTERN; may be repeated")
	return newCredentialGroup(c, at, "authtoken", "Make, list and delete authtokens of agents and operators",
		credentialKind{
			title: "authtoken", noun: "token", headings: []string{"RULES"}, rightsPrefix: "with the rules",
			deleteEffect: "when the command returns, its sessions end", exampleID: "cr-06gvhcq2s2auogl7hpr9emqabc",
			createCommand: create, credentials: tokens,
		})
}

func (a *authtokens) create(ctx context.Context, st *store.Store, n newCredential) (credentialJSON, error) {
	rules := a.rules()
	token, err := st.CreateAuthtoken(ctx, account.Caller{AccountID: n.accountID}, account.AuthtokenPatch{
		Description: &n.description, ACL: &rules, Expiry: account.ExpiryPatch{Set: true, At: n.expiresAt},
	})
	if err != nil {
		return credentialJSON{}, err
	}
	return authtokenToJSON(*token, *token.Token), nil
}

func (*authtokens) list(ctx context.Context, st *store.Store, accountID string) ([]credentialJSON, error) {
	tokens, err := st.AllAuthtokens(ctx, accountID)
	return convert(tokens, func(a account.Authtoken) credentialJSON { return authtokenToJSON(a, "") }), err
}

func (*authtokens) delete(ctx context.Context, st *store.Store, by account.Caller, id string) error {
	return st.DeleteAuthtoken(ctx, by, id)
}

// rules returns the rules of --acl and --connect, bind:* when neither is given.
func (a *authtokens) rules() []string {
	if len(a.acl)+len(a.connect) == 0 {
		return []string{"bind:*"}
	}
	rules := append([]string{}, a.acl...)
	for _, pattern := range a.connect {
		rules = append(rules, "connect:"+pattern)
	}
	return rules
}
