// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

const envAPIKey = "FAIRLEAD_API_KEY"

// accountClient makes a client of the account's API, nil when there is no API key.
func accountClient(c console, flags agentconfig.Flags, apiKeyFile, userAgent string) (*apiclient.Client, error) {
	key := c.env(envAPIKey)
	if apiKeyFile != "" {
		text, err := os.ReadFile(apiKeyFile)
		if err != nil {
			return nil, cli.Usagef("--api-key-file: %v", err)
		}
		key = string(text)
	}
	key = strings.TrimSpace(key)
	if key == "" {
		if apiKeyFile != "" {
			return nil, cli.Usagef("--api-key-file %q: the file is empty", apiKeyFile)
		}
		return nil, nil
	}
	s, err := loadSettings(flags, c)
	if err != nil {
		return nil, err
	}
	if s.ServerURL.Text == "" {
		return nil,
			cli.Usagef(
				"there is an API key, but no server to use it with: give --server https://HOST[:PORT], or set %s",
				agentconfig.EnvServerURL)
	}
	tlsConfig, err := trust.Options{CAFile: s.CAFile.Text, CASHA256: s.CASHA256.Text}.ClientConfig()
	if err != nil {
		return nil, cli.Usagef("%s: %v", trustSource(s), err)
	}
	return apiclient.New(apiclient.Options{
		BaseURL: s.ServerURL.Text, TLS: tlsConfig, APIKey: func() (string, error) {
			return key, nil
		}, UserAgent: userAgent, Timeout: 10 * time.Second,
	})
}
