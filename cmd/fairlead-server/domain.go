// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// domainJSON is a grant as the commands print it.
type domainJSON struct {
	Pattern   string    `json:"pattern"`
	Account   string    `json:"account"`
	AccountID string    `json:"account_id"`
	CreatedAt time.Time `json:"created_at"`
}

func (d domainJSON) row() []string { return []string{d.Pattern, d.Account, date(d.CreatedAt)} }

func newDomain(c console, at *dataLocation) *cobra.Command {
	return newGroup("domain", "Grant domains to accounts, for endpoints with the public binding", newDomainGrant(c, at),
		newDomainRevoke(c, at), newDomainList(c, at))
}

func newDomainGrant(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:   "grant ACCOUNT PATTERN",
		Short: "Let an account's endpoints have hosts of a domain",
		Long: `Let the account ACCOUNT (its name or id) bind endpoints with the public binding at hosts of a domain.

PATTERN is one host (example.com), or *.example.com for every host below example.com at any depth, but
not example.com itself. A host belongs to one account: a pattern that overlaps another account's is
refused. Endpoints never get the hosts of --base-url and --tunnel-url: they cannot be granted, and a
wildcard does not include them.`,
		Example: `  fairlead-server domain grant default '*.apps.example.com'
  fairlead-server domain grant team-a shop.example.com`,
		Args: arguments("ACCOUNT", "PATTERN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAccount(cmd, at, args[0], func(st *store.Store, a *account.Account) error {
				d, err := st.GrantDomain(cmd.Context(), a.ID, args[1])
				if err != nil {
					return err
				}
				covers := "this host"
				if below, ok := strings.CutPrefix(d.Pattern, "*."); ok {
					covers = "every host below " + below
				}
				_, err = fmt.Fprintf(c.out, "%s granted to account %s: %s\n", d.Pattern, a.Name, covers)
				return err
			})
		},
	}
}

func newDomainRevoke(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ACCOUNT PATTERN",
		Short:   "End a grant; endpoints at its hosts are offline when the command returns",
		Example: "  fairlead-server domain revoke team-a shop.example.com",
		Args:    arguments("ACCOUNT", "PATTERN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAccount(cmd, at, args[0], func(st *store.Store, a *account.Account) error {
				if err := st.RevokeDomain(cmd.Context(), a.ID, args[1]); err != nil {
					return err
				}
				effect, err := awaitServers(cmd.Context(), c, st, a.ID)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.out, "%s revoked from account %s: %s\n", strings.ToLower(args[1]), a.Name,
					effect)
				return err
			})
		},
	}
}

func newDomainList(c console, at *dataLocation) *cobra.Command {
	return newList(c, at, listCommand{
		use: "list [ACCOUNT]", short: "List the grants of an account, or of all",
		example: "  fairlead-server domain list",
		args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("`%s` takes one ACCOUNT at most, and got %q too", cmd.CommandPath(), args[1])
			}
			return nil
		},
		heading: []string{"PATTERN", "ACCOUNT", "GRANTED (UTC)"},
	}, listDomains)
}

func listDomains(ctx context.Context, st *store.Store, args []string) ([]domainJSON, error) {
	accountID := "" // "" lists all accounts
	if len(args) > 0 {
		a, err := findAccountArgument(ctx, st, args[0])
		if err != nil {
			return nil, err
		}
		accountID = a.ID
	}
	accounts, err := st.ListAccounts(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, a := range accounts {
		names[a.ID] = a.Name
	}
	all, err := st.ListDomains(ctx, accountID)
	return convert(all, func(d account.Domain) domainJSON {
		return domainJSON{d.Pattern, names[d.AccountID], d.AccountID, d.CreatedAt}
	}), err
}

// withAccount opens the store and finds the account that an argument names.
func withAccount(
	cmd *cobra.Command, at *dataLocation, named string, do func(*store.Store, *account.Account) error,
) error {
	return withStore(cmd.Context(), at, func(st *store.Store) error {
		a, err := findAccountArgument(cmd.Context(), st, named)
		if err != nil {
			return err
		}
		return do(st, a)
	})
}

// findAccountArgument finds the account of an argument, which may not be empty.
func findAccountArgument(ctx context.Context, st *store.Store, named string) (*account.Account, error) {
	if named == "" {
		return nil, cli.Usagef("ACCOUNT is empty: give the name or the id of an account")
	}
	a, err := findAccount(ctx, st, named)
	if fields := account.FieldsOf(err); len(fields) > 0 {
		return nil, account.Invalid("ACCOUNT", named, fields[0].Rule)
	}
	return a, err
}
