// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const configFlagHelp = "config `FILE`; default $XDG_CONFIG_HOME/fairlead/config.yaml"

// addSettings adds the flags that name the server and the authorities to trust. Commands that use
// an authtoken add its flag themselves.
func addSettings(cmd *cobra.Command, f *agentconfig.Flags) {
	flags := cmd.Flags()
	flags.StringVar(&f.Config, "config", "", configFlagHelp)
	flags.StringVar(&f.ServerURL, "server", "", "`URL` of fairlead-server, https://HOST[:PORT]")
	flags.StringVar(&f.CAFile, "ca-file", "",
		"PEM `FILE` of the certificate authorities to trust; default the system's")
	flags.StringVar(&f.CASHA256, "ca-sha256", "",
		"trust the authority whose key has this SHA-256 `FINGERPRINT`, which fairlead-server prints")
}

// loadSettings resolves the settings. Invalid settings are usage errors.
func loadSettings(flags agentconfig.Flags, c console) (*agentconfig.Settings, error) {
	s, err := agentconfig.Load(flags, c.env, c.in)
	return s, asUsageErrors(err)
}

// asUsageErrors turns an error about settings, perhaps a joined one, into a usage error or several.
// Errors with an exit code of their own and nil stay as they are.
func asUsageErrors(err error) error {
	if err == nil {
		return nil
	}
	all := unjoin(err)
	for i, e := range all {
		if exitCode(e) == exitOther {
			all[i] = &cli.UsageError{Message: e.Error()}
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return &usageErrors{all}
}

// unjoin returns the errors that err joins, or err alone.
func unjoin(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // a joined error itself
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, unjoin(e)...)
	}
	return all
}

// connectionOptions returns the agent's options that come from the settings: the server, whom to
// trust, and the authtoken. Its error lists everything that is missing or wrong.
func connectionOptions(s *agentconfig.Settings) (agent.Options, error) {
	server, noServer := serverURL(s)
	var noToken error
	if s.AuthtokenSource() == "" {
		noToken = &agentconfig.CredentialError{Msg: "no authtoken is configured: " + agentconfig.AuthtokenHint}
	}
	tlsConfig, authorities, noTrust := trustConfig(s)
	if err := errors.Join(noServer, noToken, noTrust); err != nil {
		return agent.Options{}, asUsageErrors(err)
	}
	return agent.Options{ServerOptions: agent.ServerOptions{Server: server.String(),
		Address: account.ServerAddress(server), TLS: tlsConfig, Authorities: authorities,
		Token: s.Authtoken}}, nil
}

func serverURL(s *agentconfig.Settings) (*url.URL, error) {
	if s.ServerURL.Text != "" {
		return account.ParseServerURL(s.ServerURL.Source, s.ServerURL.Text)
	}
	orFile := ""
	if s.Path != "" {
		orFile = ", or write server_url into " + s.Path
	}
	return nil, cli.Usagef("no server is configured: give --server https://HOST[:PORT], set %s%s",
		agentconfig.EnvServerURL,
		orFile)
}

// trustSource names the setting of the authority to trust; "" when the system's are trusted.
func trustSource(s *agentconfig.Settings) string {
	if s.CAFile.Text != "" {
		return s.CAFile.Source
	}
	return s.CASHA256.Source
}
