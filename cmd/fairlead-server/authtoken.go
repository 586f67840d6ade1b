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

// authtokenJSON is an authtoken as the commands print it. Secret is set once, when the token is
// made.
type authtokenJSON struct {
	ID          string     `json:"id"`
	Secret      string     `json:"secret,omitempty"`
	Description string     `json:"description"`
	ACL         []string   `json:"acl"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	LastUsedAt  *time.Time `json:"last_used_at"`
}

func toAuthtokenJSON(a account.Authtoken, secret string) authtokenJSON {
	return authtokenJSON{a.ID, secret, a.Description, a.ACL, a.CreatedAt, a.ExpiresAt, a.LastUsedAt}
}

func newAuthtoken(c console, at *place) *cobra.Command {
	return group("authtoken", "Make, list and delete authtokens of agents and operators",
		newAuthtokenCreate(c, at), newAuthtokenList(c, at), newAuthtokenDelete(c, at))
}

func newAuthtokenCreate(c console, at *place) *cobra.Command {
	var out output
	var accountName, description, expires string
	var acl, connect []string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an authtoken",
		Long: `Make an authtoken. Its rules say what it may do:
  bind:<url pattern>       an agent may bind such URLs, for example bind:http://*.demo
  bind:<label>=<value>     an agent's labelled tunnels may carry this label, for example bind:app=*; each of a tunnel's labels needs a rule
  connect:<id pattern>     a forwarder may act for such operators
"*" stands for any run of characters. Without --acl and --connect the token may bind every URL and label (bind:*) and not connect.`,
		Example: `  fairlead-server authtoken create --description "alice's laptop"
  fairlead-server authtoken create --acl 'bind:http://*.staging' --acl 'bind:tcp://*.staging:*'
  fairlead-server authtoken create --connect '*' --description "operators"
  fairlead-server authtoken create --expires 24h --description "a guest"`,
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
				all := rules(acl, connect)
				token, err := st.CreateAuthtoken(cmd.Context(), account.Caller{AccountID: a.ID}, account.AuthtokenPatch{
					Description: &description, ACL: &all, Expiry: account.ExpiryPatch{Set: true, At: until},
				})
				if err != nil {
					return err
				}
				secret := *token.Token
				about := fmt.Sprintf("Authtoken %s of account %s made, with the rules %s; it expires: %s.", token.ID, a.Name,
					strings.Join(token.ACL, " "), dateOrNever(token.ExpiresAt))
				return out.made(c, toAuthtokenJSON(*token, secret), secret, about)
			})
		},
	}
	cmd.Flags().StringVar(&accountName, "account", "", "`NAME` or id of the account; needed when there are several")
	cmd.Flags().StringArrayVar(&acl, "acl", nil,
		"`RULE` of the token; may be repeated; default bind:*, or none with --connect")
	cmd.Flags().StringArrayVar(&connect, "connect", nil,
		"operator id or `PATTERN` that a forwarder may act for, short for --acl connect:PATTERN; may be repeated")
	cmd.Flags().StringVar(&description, "description", "", "`TEXT` that says what the token is for")
	cmd.Flags().StringVar(&expires, "expires", "", expiresHelp("token"))
	out.addFlag(cmd)
	return cmd
}

// rules makes the list of rules from the two flags.
func rules(acl, connect []string) []string {
	if len(acl)+len(connect) == 0 {
		return []string{"bind:*"}
	}
	all := append([]string{}, acl...)
	for _, pattern := range connect {
		all = append(all, "connect:"+pattern)
	}
	return all
}

func newAuthtokenList(c console, at *place) *cobra.Command {
	var out output
	var accountName string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List authtokens, newest first",
		Example: "  fairlead-server authtoken list",
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
				all, err := st.AllAuthtokens(cmd.Context(), a.ID)
				if err != nil {
					return err
				}
				values, rows := []authtokenJSON{}, [][]string{}
				for _, k := range all {
					values = append(values, toAuthtokenJSON(k, ""))
					rows = append(rows, []string{k.ID, strings.Join(k.ACL, " "), date(k.CreatedAt), dateOrNever(k.ExpiresAt),
						dateOrNever(k.LastUsedAt), orDash(k.Description)})
				}
				return out.list(c.out, values, "ID\tRULES\tCREATED (UTC)\tEXPIRES\tLAST USED\tDESCRIPTION", rows)
			})
		},
	}
	cmd.Flags().StringVar(&accountName, "account", "", "`NAME` or id of the account; needed when there are several")
	out.addFlag(cmd)
	return cmd
}

func newAuthtokenDelete(c console, at *place) *cobra.Command {
	var accountName string
	cmd := &cobra.Command{
		Use:     "delete ID",
		Short:   "Delete an authtoken; its sessions and streams end within a second",
		Example: "  fairlead-server authtoken delete cr-06gvhcq2s2auogl7hpr9emqabc",
		Args:    arguments("the ID of an authtoken"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				err := deleteFrom(cmd.Context(), st, accountName, func(accountID string) error {
					return st.DeleteAuthtoken(cmd.Context(), account.Caller{AccountID: accountID}, args[0])
				})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.out, "authtoken %s deleted\n", args[0])
				return err
			})
		},
	}
	cmd.Flags().StringVar(&accountName, "account", "", "`NAME` or id of the account; default: the one that has the token")
	return cmd
}
