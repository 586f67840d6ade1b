// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/store"
)

// apiKeyJSON is an API key as the commands print it. Secret is set once, when the key is made.
type apiKeyJSON struct {
	ID          string          `json:"id"`
	Secret      string          `json:"secret,omitempty"`
	Description string          `json:"description"`
	Scopes      []account.Scope `json:"scopes"`
	CreatedAt   time.Time       `json:"created_at"`
	ExpiresAt   *time.Time      `json:"expires_at"`
	LastUsedAt  *time.Time      `json:"last_used_at"`
}

func toAPIKeyJSON(k account.APIKey, secret string) apiKeyJSON {
	return apiKeyJSON{k.ID, secret, k.Description, k.Scopes, k.CreatedAt, k.ExpiresAt, k.LastUsedAt}
}

func newAPIKey(c console, at *place) *cobra.Command {
	return group("api-key", "Make, list and delete API keys", newAPIKeyCreate(c, at), newAPIKeyList(c, at),
		newAPIKeyDelete(c, at))
}

func newAPIKeyCreate(c console, at *place) *cobra.Command {
	var out output
	var accountName, description, expires string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an API key",
		Long: `Make an API key. Its scopes say what it may do:
  admin      everything (the default)
  read       read everything
  operator   read and watch endpoints, register operators: what fairlead-operator needs
  identities read and revoke those who logged in, and their sessions, and nothing else`,
		Example: `  fairlead-server api-key create --scope operator --description "cluster eu-1"
  KEY=$(fairlead-server api-key create --scope read --expires 720h)`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			until, err := parseExpiry(expires, time.Now())
			if err == nil {
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
				key, secret, err := st.IssueAPIKey(cmd.Context(), a.ID, description, toScopes(scopes), until)
				if err != nil {
					return err
				}
				about := fmt.Sprintf("API key %s of account %s made, for %s; it expires: %s.", key.ID, a.Name,
					joinScopes(key.Scopes), dateOrNever(key.ExpiresAt))
				return out.made(c, toAPIKeyJSON(*key, secret), secret, about)
			})
		},
	}
	cmd.Flags().StringVar(&accountName, "account", "", "`NAME` or id of the account; needed when there are several")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil,
		"`SCOPE` of the key: admin, read, operator or identities; may be repeated; default admin")
	cmd.Flags().StringVar(&description, "description", "", "`TEXT` that says what the key is for")
	cmd.Flags().StringVar(&expires, "expires", "", expiresHelp("key"))
	out.addFlag(cmd)
	return cmd
}

func newAPIKeyList(c console, at *place) *cobra.Command {
	var out output
	var accountName string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List API keys, newest first",
		Example: "  fairlead-server api-key list",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				a, err := findAccount(cmd.Context(), st, accountName)
				if err != nil {
					return err
				}
				all, err := st.AllAPIKeys(cmd.Context(), a.ID)
				if err != nil {
					return err
				}
				values, rows := []apiKeyJSON{}, [][]string{}
				for _, k := range all {
					values = append(values, toAPIKeyJSON(k, ""))
					rows = append(rows, []string{k.ID, joinScopes(k.Scopes), date(k.CreatedAt), dateOrNever(k.ExpiresAt),
						dateOrNever(k.LastUsedAt), orDash(k.Description)})
				}
				return out.list(c.out, values, "ID\tSCOPES\tCREATED (UTC)\tEXPIRES\tLAST USED\tDESCRIPTION", rows)
			})
		},
	}
	cmd.Flags().StringVar(&accountName, "account", "", "`NAME` or id of the account; needed when there are several")
	out.addFlag(cmd)
	return cmd
}

func newAPIKeyDelete(c console, at *place) *cobra.Command {
	var accountName string
	cmd := &cobra.Command{
		Use:     "delete ID",
		Short:   "Delete an API key; what it has open ends within a second",
		Example: "  fairlead-server api-key delete ak-06gvhcq2s01qv18avutpa9ljkg",
		Args:    arguments("the ID of an API key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				err := deleteFrom(cmd.Context(), st, accountName, func(accountID string) error {
					return st.DeleteAPIKey(cmd.Context(), account.Caller{AccountID: accountID}, args[0])
				})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.out, "API key %s deleted\n", args[0])
				return err
			})
		},
	}
	cmd.Flags().StringVar(&accountName, "account", "", "`NAME` or id of the account; default: the one that has the key")
	return cmd
}

func expiresHelp(what string) string {
	return "`WHEN` the " + what +
		" ends: a duration (720h), a day (2027-01-31, its beginning in UTC) or a time (2027-01-31T18:00:00Z); default never"
}

// parseExpiry reads a duration from now on, a day or a point in time.
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

func toScopes(texts []string) []account.Scope {
	scopes := make([]account.Scope, len(texts))
	for i, s := range texts {
		scopes[i] = account.Scope(s)
	}
	return scopes
}

func joinScopes(scopes []account.Scope) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ",")
}
