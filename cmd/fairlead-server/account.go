// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/store"
)

// accountJSON is an account as the commands print it.
type accountJSON struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

func toAccountJSON(a account.Account) accountJSON { return accountJSON(a) }

func newAccount(c console, at *place) *cobra.Command {
	return group("account", "Make and list accounts", newAccountCreate(c, at), newAccountList(c, at))
}

func newAccountCreate(c console, at *place) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an account",
		Long: "Make an account. Nothing of one account is visible to another: endpoints, operators, keys and tokens are " +
			"its own.",
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
					return printJSON(c.out, toAccountJSON(*a))
				}
				_, err = fmt.Fprintf(c.out, "account %s made: %s\n", a.Name, a.ID)
				return err
			})
		},
	}
	out.addFlag(cmd)
	return cmd
}

func newAccountList(c console, at *place) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List accounts",
		Example: "  fairlead-server account list",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				all, err := st.ListAccounts(cmd.Context())
				if err != nil {
					return err
				}
				values, rows := []accountJSON{}, [][]string{}
				for _, a := range all {
					values = append(values, toAccountJSON(a))
					rows = append(rows, []string{a.ID, a.Name, date(a.CreatedAt)})
				}
				return out.list(c.out, values, "ID\tNAME\tCREATED (UTC)", rows)
			})
		},
	}
	out.addFlag(cmd)
	return cmd
}
