// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/connect"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const connectHelp = `Call endpoints of the account from this machine. Each URL gets a port of 127.0.0.1, and
what connects there reaches the endpoint as a pod's call does: through the service, with the
endpoint's traffic policy. The endpoints are those of the binding kubernetes. Nothing else becomes
reachable, and no name is resolved: call the printed addresses.

The port is the URL's own, or a free one where this user may not listen there. Give another with --port.
The authtoken needs a rule connect:<url pattern> for each URL, such as connect:http://*.demo, or
connect:*. While the service cannot be reached, calls of http endpoints are answered with 503 and
ERR_FL_3004, and connections to tcp endpoints are reset. Ctrl-C closes the ports and lets calls finish.
Exit codes: fairlead --help.`

const connectExamples = `  fairlead connect http://api.demo --port 8080     # then: curl http://127.0.0.1:8080
  fairlead connect tcp://orders.db:5432
  fairlead connect http://api.demo http://wiki.tools --port http://api.demo=8080 --port http://wiki.tools=8081`

func newConnect(c console) *cobra.Command {
	a := &agentCommand{console: c}
	var ports []string
	var authorities, accountID string
	cmd := &cobra.Command{
		Use:     "connect URL...",
		Short:   "Call endpoints of the account at ports of this machine",
		Long:    connectHelp,
		Example: connectExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			trust, err := parseTrust(authorities, accountID)
			if err == nil {
				err = a.connect(cmd.Context(), args, ports, trust)
			}
			if err != nil {
				return &formattedError{err, a.logFormat == "json"}
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&ports, "port", nil,
		"`PORT` of 127.0.0.1 for the URL, or URL=PORT for one of several; may be repeated; default the URL's own or a "+
			"free one")
	cmd.Flags().StringVar(&authorities, "seal-authority", "",
		"PEM `FILE` of the authorities that sign for the agents of sealed endpoints: each URL is sealed, or refused")
	cmd.Flags().StringVar(&accountID, "seal-account", "", "`ID` of the account, for --seal-authority")
	a.addSessionFlags(cmd, "")
	return cmd
}

// connect is `fairlead connect`.
func (a *agentCommand) connect(ctx context.Context, urls, ports []string, trust *sealed.Trust) error {
	targets, err := parseTargets(urls, ports)
	if err != nil {
		return err
	}
	level, settings, err := a.load()
	if settings == nil {
		return err
	}
	o, err := a.options(level, settings, err)
	if err != nil {
		return err
	}
	lines := screen.New(a.console.out,
		screen.Options{JSON: a.logFormat == "json", Color: a.console.color, Level: level})
	defer lines.Close()
	return withRemedy(connect.Run(ctx, connect.Options{ServerOptions: o.ServerOptions, Targets: targets,
		Trust: trust, Observer: &remedyObserver{lines, settings}, Logger: o.Logger}), settings)
}

// parseTrust returns whose agents may answer; nil without flags: connections are plain.
func parseTrust(file, accountID string) (*sealed.Trust, error) {
	switch {
	case file == "" && accountID == "":
		return nil, nil
	case file == "" || !account.ValidID(account.PrefixAccount, accountID):
		return nil, cli.Usagef("--seal-account %q: give the id of the account (ac-…) and --seal-authority, both",
			account.Shorten(accountID))
	}
	text, err := authority.ReadFile(file)
	o := sealed.TrustOptions{Mode: sealed.Require, Account: accountID}
	if err == nil {
		o.Authorities, err = authority.ParseAuthorities(string(text))
	}
	if err != nil {
		return nil, cli.Usagef("--seal-authority %q: %v", file, err)
	}
	return sealed.NewTrust(o)
}

// parseTargets reads the URLs and the values of --port.
func parseTargets(urls, ports []string) ([]connect.Target, error) {
	if len(urls) == 0 {
		return nil, cli.Usagef("give the URL of an endpoint; e.g. fairlead connect http://api.demo --port 8080")
	}
	if len(urls) > tunnel.MaxURLs {
		return nil, cli.Usagef("%d URLs are given, and one command calls at most %d", len(urls), tunnel.MaxURLs)
	}
	targets := make([]connect.Target, len(urls))
	for i, text := range urls {
		u, err := parseTarget(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(targets[:i], func(t connect.Target) bool { return t.URL == u }) {
			return nil, cli.Usagef("%s is given twice", u.String())
		}
		targets[i].URL = u
	}
	for _, text := range ports {
		if err := setPort(targets, text); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// setPort sets the port of a target: PORT of the only one, or URL=PORT.
func setPort(targets []connect.Target, text string) error {
	url, number, named := strings.Cut(text, "=")
	if !named {
		url, number = targets[0].URL.String(), text
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		return cli.Usagef("--port %q: must be PORT or URL=PORT, with a port from 1 to 65535", account.Shorten(text))
	}
	u, err := parseTarget(url)
	if err != nil {
		return fmt.Errorf("--port: %w", err)
	}
	which := slices.IndexFunc(targets, func(t connect.Target) bool { return t.URL == u })
	if which < 0 || !named && len(targets) > 1 {
		return cli.Usagef("--port %q: must name one of the URLs, as URL=PORT", account.Shorten(text))
	}
	targets[which].Port = int(port)
	return nil
}

func parseTarget(text string) (account.EndpointURL, error) {
	u, err := account.ParseEndpointURL(text)
	if err != nil {
		return u, cli.Usagef("URL %q: %s", account.Shorten(text), account.FirstRule(err))
	}
	return u, nil
}
