// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

func newLogin(c console) *cobra.Command {
	var flags agentconfig.Flags
	cmd := &cobra.Command{
		Use:   "login [-]",
		Short: "Store an API key of the account on this machine",
		Long: `Read an API key from the terminal without echo, or with - from standard input, ask the service whether
it accepts the key, and store it in the config file, which only its owner can read afterwards. fairlead api,
fairlead doctor and fairlead status use it where neither FAIRLEAD_API_KEY nor --api-key-file gives
another one. A key that the service refuses changes nothing.

--server, --ca-file and --ca-sha256 are stored too. An agent needs an authtoken instead: see
fairlead config add-authtoken --help.`,
		Example: `  fairlead login
  fairlead login --server https://fairlead.example.net:8443 --ca-file ca.crt
  pass show fairlead-key | fairlead login -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 1 && args[0] == "-" {
				return nil
			}
			return cli.Usagef("%s takes no key as an argument, where the shell's history and the process list "+
				"show it: run `fairlead login` and paste it, or give - to read it from standard input",
				cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return login(cmd.Context(), c, flags, len(args) == 1)
		},
	}
	addSettings(cmd, &flags)
	return cmd
}

func login(ctx context.Context, c console, flags agentconfig.Flags, fromStdin bool) error {
	path, _, err := agentconfig.Path(flags.Config, c.env)
	if err != nil {
		return &cli.UsageError{Message: err.Error()}
	}
	values, err := settingsToStore(flags)
	if err != nil {
		return err
	}
	flags.CreatesConfig = true
	s, err := loadSettings(flags, c)
	if err = withoutCredentialErrors(err); err != nil {
		return err
	}
	if _, err := serverURL(s); err != nil {
		return err
	}
	key, err := readAPIKey(c, fromStdin)
	if err != nil {
		return err
	}
	accountID, err := checkKey(ctx, s, key)
	if err != nil {
		return err
	}
	values[agentconfig.KeyAPIKey] = key
	if err := agentconfig.Save(path, values); err != nil {
		return err
	}
	if c.env(envAPIKey) != "" {
		_, _ = fmt.Fprintln(c.err, "fairlead: warning: "+envAPIKey+" is set, and is used instead of the stored key")
	}
	if accountID != "" {
		accountID = " of account " + accountID
	}
	_, err = fmt.Fprintf(c.out, "API key%s stored in %s\n", accountID, path)
	return err
}

// readAPIKey reads a key from the terminal, or from standard input.
func readAPIKey(c console, fromStdin bool) (string, error) {
	text, typed, err := c.secret("API key: ")
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the API key from the terminal: %w", err)
	case typed:
		return agentconfig.ReadAPIKey("the terminal", strings.NewReader(text))
	case !fromStdin:
		return "", cli.Usagef("there is no terminal to ask for the API key: give - to read it from standard input")
	}
	return agentconfig.ReadAPIKey("standard input", c.in)
}

// checkKey asks the service whether it accepts a key, and returns the id of its account; "" when
// the key may not read endpoints.
func checkKey(ctx context.Context, s *agentconfig.Settings, key string) (accountID string, err error) {
	client, err := clientOf(s, key, "fairlead login")
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	page, err := client.FirstEndpoints(ctx, 1)
	if account.CodeOf(err) == account.CodeScope {
		err = nil
	}
	return page.AccountID, withIdentityRemedy(err, s)
}

func newLogout(c console) *cobra.Command {
	var flags agentconfig.Flags
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Remove the API key from this machine",
		Long: `Remove the API key from the config file. The service goes on accepting the key: to end it,
delete it there with fairlead api api-keys delete ID.`,
		Example: "  fairlead logout",
		Args:    cli.NoArguments,
		RunE:    func(*cobra.Command, []string) error { return logout(c, flags) },
	}
	cmd.Flags().StringVar(&flags.Config, "config", "", configFlagHelp)
	return cmd
}

func logout(c console, flags agentconfig.Flags) error {
	env := func(name string) string {
		if name == envAPIKey {
			return "" // which the config file has nothing to do with
		}
		return c.env(name)
	}
	s, err := loadSettings(flags, console{env: env, in: io.MultiReader()})
	if s == nil { // other mistakes are none of a file without the key
		return err
	}
	if !s.APIKeyStored() {
		return fmt.Errorf("no API key is stored in %s", s.Path)
	}
	if err := agentconfig.Save(s.Path, map[string]string{agentconfig.KeyAPIKey: ""}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "API key removed from %s\n", s.Path)
	return err
}
