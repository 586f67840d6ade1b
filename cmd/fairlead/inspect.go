// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect/page"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// inspectFlags are the flags of the inspector. Commands without them have none.
type inspectFlags struct {
	offered bool
	on      bool
	onGiven bool // --inspect
	address string
}

func (a *agentCommand) addInspectFlags(cmd *cobra.Command) {
	a.inspect.offered = true
	cmd.Flags().BoolVar(&a.inspect.on, "inspect", false,
		"serve the inspector: requests, answers and replay in a browser of this machine. Default: on a terminal")
	cmd.Flags().StringVar(&a.inspect.address, "inspect-addr", "",
		"`HOST:PORT` of the inspector; default "+inspect.DefaultAddress+
			", or the next free port. Everyone who reaches "+
			"it reads all requests")
}

// wanted reports whether there is to be an inspector, and whether the user asked for it.
func (f *inspectFlags) wanted(c console, endpoints []agent.Endpoint) (wanted, asked bool) {
	asked = f.offered && (f.on || f.address != "" && !f.onGiven)
	switch {
	case !f.offered, f.onGiven && !f.on:
		return false, false
	case asked:
		return true, true
	}
	carriesHTTP := slices.ContainsFunc(endpoints, func(e agent.Endpoint) bool { return e.URL.Scheme != "tcp" })
	return carriesHTTP && isTerminal(c), false
}

func isTerminal(c console) bool {
	f, ok := c.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// inspector is a running inspector; nil = none.
type inspector struct {
	recorder *inspect.Recorder
	server   *inspect.Server
}

// startInspector starts the inspector if it is wanted, and sets the agent's options for it. One
// that the user did not ask for is left out where it cannot listen.
func (a *agentCommand) startInspector(ctx context.Context, o *agent.Options, level slog.Level) (*inspector, error) {
	f := &a.inspect
	wanted, asked := f.wanted(a.console, o.Endpoints)
	if !wanted {
		return nil, nil
	}
	address := cmp.Or(f.address, inspect.DefaultAddress)
	listener, err := inspect.Listen(ctx, address, f.address == "")
	switch {
	case err != nil && asked:
		return nil, cli.Usagef("--inspect-addr %v", err)
	case err != nil:
		a.printWarnings(level, []string{"there is no inspector: " + err.Error()})
		return nil, nil //nolint:nilerr // the agent works without one
	}
	host, _, _ := net.SplitHostPort(address)
	i := &inspector{recorder: inspect.New()}
	i.server = inspect.Serve(listener, i.recorder, inspect.ServerOptions{Host: strings.ToLower(host),
		Pages: page.New(page.Options{Recorder: i.recorder, Version: version.String()})})
	o.Inspect, o.InspectURL = i.recorder, i.server.URL()
	return i, nil
}

func (i *inspector) close() {
	if i != nil {
		i.server.Close()
		i.recorder.Close()
	}
}
