// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

const envAPIKey = agentconfig.EnvAPIKey

// accountClient makes a client of the account's API, nil when there is no API key.
func accountClient(c console, flags agentconfig.Flags, apiKeyFile, userAgent string) (*apiclient.Client, error) {
	flags.APIKeyFile = apiKeyFile
	if _, _, err := agentconfig.Path(flags.Config, c.env); err != nil && apiKeyFile == "" && c.env(envAPIKey) == "" {
		return nil, nil //nolint:nilerr // without a home directory there is no config file, which may hold a key
	}
	s, err := loadSettings(flags, c)
	if err = withoutCredentialErrors(err); err == nil {
		err = checkStoredKey(s)
	}
	if err != nil || s.APIKeySource() == "" {
		return nil, err
	}
	for _, w := range s.Warnings {
		_, _ = fmt.Fprintln(c.err, "fairlead: warning: "+w)
	}
	return clientOf(s, s.APIKey(), userAgent)
}

// checkStoredKey checks the form of the API key of the config file.
func checkStoredKey(s *agentconfig.Settings) error {
	if !s.APIKeyStored() {
		return nil
	}
	return agentconfig.CheckAPIKey(s.APIKeySource(), s.APIKey())
}

// withoutCredentialErrors returns err without the errors about a credential that it joins: the
// authtoken's do not matter to the API.
func withoutCredentialErrors(err error) error {
	return asUsageErrors(errors.Join(slices.DeleteFunc(unjoin(err), func(e error) bool {
		return exitCode(e) == exitCredentials
	})...))
}

// clientOf makes a client that presents a key to the server of the settings.
func clientOf(s *agentconfig.Settings, key, userAgent string) (*apiclient.Client, error) {
	if s.ServerURL.Text == "" {
		return nil,
			cli.Usagef(
				"there is an API key, but no server to use it with: give --server https://HOST[:PORT], or set %s",
				agentconfig.EnvServerURL)
	}
	tlsConfig, authorities, err := trustConfig(s)
	if err != nil {
		return nil, err
	}
	return apiclient.New(apiclient.Options{
		BaseURL: s.ServerURL.Text, TLS: tlsConfig, Authorities: authorities, APIKey: func() (string, error) {
			return key, nil
		}, UserAgent: userAgent, Timeout: 10 * time.Second,
	})
}

// trustConfig returns what the settings, and what an agent has learnt here, make of the server's
// authority, and what learns further ones.
func trustConfig(s *agentconfig.Settings) (*tls.Config, *trust.Authorities, error) {
	o := trust.Options{CAFile: s.CAFile.Text, CASHA256: s.CASHA256.Text, Keep: s.StateDir}
	if server, err := account.ParseServerURL(s.ServerURL.Source, s.ServerURL.Text); err == nil {
		o.Host = server.Hostname()
	}
	config, authorities, err := o.Open()
	if err != nil {
		return nil, nil, cli.Usagef("%s: %v", trustSource(s), err)
	}
	return config, authorities, nil
}
