// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// accountJSON is an account as the commands print it.
type accountJSON struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

func (a accountJSON) row() []string { return []string{a.ID, a.Name, date(a.CreatedAt)} }

func newAccount(c console, at *dataLocation) *cobra.Command {
	list := newList(c, at, listCommand{short: "List accounts", example: "  fairlead-server account list",
		heading: []string{"ID", "NAME", "CREATED (UTC)"},
	}, func(ctx context.Context, st *store.Store, _ []string) ([]accountJSON, error) {
		all, err := st.ListAccounts(ctx)
		return convert(all, func(a account.Account) accountJSON { return accountJSON(a) }), err
	})
	return newGroup("account", "Make and list accounts", newAccountCreate(c, at), list)
}

func newAccountCreate(c console, at *dataLocation) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an account",
		Long: `Make an account. Endpoints, operators, keys and tokens belong to one account and are invisible to
the others.`,
		Example: `  fairlead-server account create team-a
  fairlead-server api-key create --account team-a`,
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				a, err := st.CreateAccount(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if out.format == "json" {
					return cli.WriteJSON(c.out, accountJSON(*a))
				}
				_, err = fmt.Fprintf(c.out, "account %s made: %s\n", a.Name, a.ID)
				return err
			})
		},
	}
	out.addFlag(cmd)
	return cmd
}
