// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
)

// endpointFlags say what to bind.
type endpointFlags struct {
	url, binding, name, description, metadata string
	pooling                                   bool
}

func (f *endpointFlags) add(cmd *cobra.Command, example string) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "`URL` at which the endpoint is called, e.g. "+example+" (required)")
	flags.StringVar(&f.binding, "binding", account.BindingKubernetes, "where the endpoint can be called from: kubernetes (pods of the account's clusters), internal\n"+
		"(traffic policies of the account, at a URL below .internal), or public (everybody, at a\nURL below a domain that the server grants to the account)")
	flags.StringVar(&f.name, "name", "", fmt.Sprintf("`NAME` of the endpoint, at most %d bytes", account.MaxName))
	flags.StringVar(&f.description, "description", "", fmt.Sprintf("`TEXT` for people, at most %d bytes", account.MaxDescription))
	flags.StringVar(&f.metadata, "metadata", "", fmt.Sprintf("`TEXT` for programs, at most %d bytes", account.MaxMetadata))
	flags.BoolVar(&f.pooling, "pooling-enabled", false, "share the URL with every other agent that was started with this flag: each new call\n"+
		"goes to the agent that serves the fewest. --name, or else an id that each agent keeps in\n"+
		"its state directory, tells the members of such a pool apart")
}

// endpoint checks the flags. scheme is the command's.
func (f *endpointFlags) endpoint(scheme string) (agent.Endpoint, error) {
	e := agent.Endpoint{Binding: f.binding, Name: f.name, Description: f.description, Metadata: f.metadata, Pooling: f.pooling}
	if f.url == "" {
		example := map[string]string{"http": "http://hello.demo", "tcp": "tcp://postgres.demo:5432"}[scheme]
		return e, usagef("--url is missing: give the URL at which the endpoint is called, e.g. --url %s", example)
	}
	if !slices.Contains(account.Bindings(), f.binding) {
		return e, usagef("--binding %q: must be kubernetes, internal or public", f.binding)
	}
	u, err := account.ParseBindingURL(f.binding, f.url)
	if err != nil {
		return e, asFlag("--url", err)
	}
	if command := commandOf(u.Scheme); command != scheme {
		return e, usagef("--url %q: `fairlead %s` serves %s endpoints; use `fairlead %s`, or a URL that begins with %s://", f.url, scheme, scheme, command, scheme)
	}
	e.URL = u
	for _, t := range []struct {
		flag, text string
		limit      int
	}{{"--name", f.name, account.MaxName}, {"--description", f.description, account.MaxDescription}, {"--metadata", f.metadata, account.MaxMetadata}} {
		if err := checkText(t.flag, t.text, t.limit); err != nil {
			return e, err
		}
	}
	return e, nil
}

// commandOf is the command that serves endpoints of the scheme: an https endpoint is an http one whose clients reach the service over TLS.
func commandOf(scheme string) string {
	if scheme == "https" {
		return "http"
	}
	return scheme
}

func checkText(flag, text string, limit int) error {
	shown := text
	if len(shown) > 40 {
		shown = shown[:40] + "…"
	}
	switch {
	case len(text) > limit:
		return usagef("%s %q: has %d bytes, and %d are allowed; shorten it", flag, shown, len(text), limit)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return usagef("%s %q: must be valid UTF-8 without NUL", flag, shown)
	}
	return nil
}

// asFlag names the flag in an error about a field.
func asFlag(flag string, err error) error {
	var invalid *account.Error
	if errors.As(err, &invalid) && len(invalid.Fields) == 1 {
		return account.Invalid(flag, invalid.Fields[0].Value, invalid.Fields[0].Rule)
	}
	return err
}
