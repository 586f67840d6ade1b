// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// credentialJSON is an API key, which has Scopes, or an authtoken, which has none, as the commands
// print it. Secret is set only in the answer to its creation.
type credentialJSON struct {
	ID          string          `json:"id"`
	Secret      string          `json:"secret,omitempty"`
	Description string          `json:"description"`
	Scopes      []account.Scope `json:"scopes,omitzero"`
	ACL         []string        `json:"acl,omitempty"` // authtokens' and exporters' rules
	ClusterUID  string          `json:"cluster_uid,omitempty"`
	CreatedAt   time.Time       `json:"created_at"`
	ExpiresAt   *time.Time      `json:"expires_at"`
	LastUsedAt  *time.Time      `json:"last_used_at"`
}

// row has the columns of credentialKind.headings: those of an API key if it has scopes.
func (c credentialJSON) row() []string {
	rights := []string{c.rules()}
	if c.Scopes != nil {
		rights = []string{c.scopes(), orDash(c.rules()), orDash(c.ClusterUID)}
	}
	return slices.Concat([]string{c.ID}, rights, []string{date(c.CreatedAt), dateOrNever(c.ExpiresAt),
		dateOrNever(c.LastUsedAt), orDash(c.Description)})
}

// rights returns the scopes and the rules as one text.
func (c credentialJSON) rights() string {
	return strings.Join(slices.DeleteFunc([]string{c.scopes(), c.rules()}, func(s string) bool { return s == "" }), " ")
}

func (c credentialJSON) scopes() string {
	texts := make([]string, len(c.Scopes))
	for i, s := range c.Scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ",")
}

func (c credentialJSON) rules() string { return strings.Join(c.ACL, " ") }

// credentialKind is what the commands of API keys and those of authtokens differ in.
type credentialKind struct {
	title, noun   string   // "API key", "key"
	headings      []string // headings of the columns of rights in a list
	rightsPrefix  string   // the word before the rights in the answer to a creation
	deleteEffect  string   // after "Delete an API key"
	exampleID     string
	createCommand *cobra.Command // with its texts and the flags of this kind
	credentials
}

// credentials creates, lists and deletes credentials in the store: apiKeys or authtokens.
type credentials interface {
	create(context.Context, *store.Store, newCredential) (credentialJSON, error)
	list(ctx context.Context, st *store.Store, accountID string) ([]credentialJSON, error)
	delete(ctx context.Context, st *store.Store, by account.Caller, id string) error
}

// newCredential has the flags that both kinds have.
type newCredential struct {
	accountID, description string
	expiresAt              *time.Time
}

// newCredentialGroup makes the command use with its subcommands create, list and delete.
func newCredentialGroup(c console, at *dataLocation, use, short string, k credentialKind) *cobra.Command {
	return newGroup(use, short, k.newCreate(c, at), k.newList(c, at, use), k.newDelete(c, at, use))
}

func (k credentialKind) newCreate(c console, at *dataLocation) *cobra.Command {
	var out output
	var accountName, expires string
	var n newCredential
	cmd := k.createCommand
	cmd.Use, cmd.Args = "create", arguments()
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if n.expiresAt, err = parseExpiry(expires, time.Now()); err == nil {
			err = out.check()
		}
		if err != nil {
			return err
		}
		return withStore(cmd.Context(), at, func(st *store.Store) error {
			a, err := findAccount(cmd.Context(), st, accountName)
			if err != nil {
				return err
			}
			n.accountID = a.ID
			made, err := k.create(cmd.Context(), st, n)
			if err != nil {
				return err
			}
			return out.printSecret(c, made, fmt.Sprintf("%s %s of account %s made, %s %s; it expires: %s.",
				strings.ToUpper(k.title[:1])+k.title[1:], made.ID, a.Name, k.rightsPrefix, made.rights(),
				dateOrNever(made.ExpiresAt)))
		})
	}
	addAccountFlag(cmd, &accountName, "needed when there are several")
	cmd.Flags().StringVar(&n.description, "description", "", "`TEXT` that describes the use of the "+k.noun)
	cmd.Flags().StringVar(&expires, "expires", "", "`WHEN` the "+k.noun+
		" ends: a duration (720h), a day (2027-01-31, its beginning in UTC) or a time (2027-01-31T18:00:00Z); "+
		"default never")
	out.addFlag(cmd)
	return cmd
}

func (k credentialKind) newList(c console, at *dataLocation, use string) *cobra.Command {
	var accountName string
	cmd := newList(c, at, listCommand{
		short: "List " + k.title + "s, newest first", example: "  fairlead-server " + use + " list",
		heading: slices.Concat([]string{"ID"}, k.headings,
			[]string{"CREATED (UTC)", "EXPIRES", "LAST USED", "DESCRIPTION"}),
	}, func(ctx context.Context, st *store.Store, _ []string) ([]credentialJSON, error) {
		a, err := findAccount(ctx, st, accountName)
		if err != nil {
			return nil, err
		}
		return k.list(ctx, st, a.ID)
	})
	addAccountFlag(cmd, &accountName, "needed when there are several")
	return cmd
}

func (k credentialKind) newDelete(c console, at *dataLocation, use string) *cobra.Command {
	var accountName string
	cmd := &cobra.Command{
		Use:     "delete ID",
		Short:   "Delete an " + k.title + "; " + k.deleteEffect,
		Example: "  fairlead-server " + use + " delete " + k.exampleID,
		Args:    arguments("the ID of an " + k.title),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				accountID := ""
				err := deleteFromAccount(cmd.Context(), st, accountName, func(id string) error {
					accountID = id
					return k.delete(cmd.Context(), st, account.Caller{AccountID: id}, args[0])
				})
				if err != nil {
					return err
				}
				effect, err := awaitServers(cmd.Context(), c, st, accountID)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.out, "%s %s deleted: %s\n", k.title, args[0], effect)
				return err
			})
		},
	}
	addAccountFlag(cmd, &accountName, "default: the one that has the "+k.noun)
	return cmd
}

func addAccountFlag(cmd *cobra.Command, to *string, when string) {
	cmd.Flags().StringVar(to, "account", "", "`NAME` or id of the account; "+when)
}

// parseExpiry parses a duration from now on, a day or a point in time; nil for "".
func parseExpiry(s string, now time.Time) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t, err = time.Parse(time.DateOnly, s)
	}
	if d, notDuration := time.ParseDuration(s); notDuration == nil {
		t, err = now.Add(d).UTC(), nil
	}
	if err != nil {
		return nil, account.Invalid("--expires", s,
			"must be a duration such as 720h, a day such as 2027-01-31, or a time such as 2027-01-31T18:00:00Z")
	}
	if !t.After(now) {
		return nil, account.Invalid("--expires", s, "must lie in the future")
	}
	return &t, nil
}
