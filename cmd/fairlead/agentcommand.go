// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

// agentCommand is what `fairlead http`, `tcp`, `tunnel` and `start` share: they run the agent.
type agentCommand struct {
	console   console
	settings  agentconfig.Flags
	logFormat string
	logLevel  string
	noScreen  bool
	inspect   inspectFlags

	logFlagsGiven bool // --log-format or --log-level
}

func (a *agentCommand) addFlags(cmd *cobra.Command) {
	a.addSessionFlags(cmd, ". Replaces the status screen")
	flags := cmd.Flags()
	flags.BoolVar(&a.noScreen, "no-screen", false, "print lines instead of the status screen on a terminal")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		a.logFlagsGiven = cmd.Flags().Changed("log-format") || cmd.Flags().Changed("log-level")
		a.inspect.onGiven = cmd.Flags().Changed("inspect")
	}
}

// addSessionFlags adds the flags of the session with the service and of the log; effect ends the
// usage of the latter.
func (a *agentCommand) addSessionFlags(cmd *cobra.Command, effect string) {
	addSettings(cmd, &a.settings)
	flags := cmd.Flags()
	flags.StringVar(&a.settings.AuthtokenFile, "authtoken-file", "",
		"`FILE` that holds the authtoken, read again for each session; - for standard input")
	flags.StringVar(&a.logFormat, "log-format", "text", "text, or json: one JSON object a line"+effect)
	flags.StringVar(&a.logLevel, "log-level", "info", "debug, info, warn (no request lines) or error"+effect)
	cli.CompleteValues(cmd, "log-format", "text", "json")
	cli.CompleteValues(cmd, "log-level", "debug", "info", "warn", "error")
}

// serveOne serves the endpoint that parse makes of arguments and flags.
func (a *agentCommand) serveOne(ctx context.Context, parse func() (agent.Endpoint, error)) error {
	e, err := parse()
	if err != nil {
		return &formattedError{err, a.logFormat == "json"}
	}
	return a.run(ctx, func(*agentconfig.Settings) ([]agent.Endpoint, error) { return []agent.Endpoint{e}, nil })
}

// run serves the endpoints that selected makes of the settings. Its errors carry the log format.
func (a *agentCommand) run(
	ctx context.Context, selected func(*agentconfig.Settings) ([]agent.Endpoint, error),
) error {
	if err := a.start(ctx, selected); err != nil {
		return &formattedError{err, a.logFormat == "json"}
	}
	return nil
}

func (a *agentCommand) start(
	ctx context.Context, selected func(*agentconfig.Settings) ([]agent.Endpoint, error),
) error {
	level, settings, err := a.load()
	if settings == nil {
		return err
	}
	endpoints, notSelected := selected(settings)
	o, err := a.options(level, settings, err, notSelected)
	if err != nil {
		return err
	}
	o.Endpoints = endpoints
	return a.serve(ctx, o, level, settings)
}

// load returns the level of the log and the settings, which it returns with their mistakes, too.
func (a *agentCommand) load() (slog.Level, *agentconfig.Settings, error) {
	level, err := a.parseLogFlags()
	if err != nil {
		return 0, nil, err
	}
	settings, err := loadSettings(a.settings, a.console)
	return level, settings, err
}

// options returns the options of the connection to the server, and prints the settings' warnings.
// What is missing for it is an error beside the mistakes that were found before.
func (a *agentCommand) options(
	level slog.Level, settings *agentconfig.Settings, mistakes ...error,
) (agent.Options, error) {
	o, missing := connectionOptions(settings)
	err := asUsageErrors(errors.Join(append(mistakes, missing)...))
	if err != nil {
		return o, err
	}
	o.Logger = a.logger(level)
	if o.DialServer, err = connectproxy.Dialer(a.console.env, o.Address, nil, o.TLS.RootCAs); err != nil {
		return o, &cli.UsageError{Message: err.Error()}
	}
	o.RetryUntrusted = []trust.Problem{trust.UnknownAuthority, trust.WrongHost, trust.OutOfDate, trust.BadCertificate}
	if !isTerminal(a.console) {
		o.RetryUntrusted = append(o.RetryUntrusted, trust.WrongPin)
	}
	a.printWarnings(level, settings.Warnings)
	return o, nil
}

// serve runs the agent with its screen and its instance id.
func (a *agentCommand) serve(
	ctx context.Context, o agent.Options, level slog.Level, settings *agentconfig.Settings,
) error {
	instance, err := acquireInstance(a.console.env)
	if err != nil {
		o.Logger.Debug("the instance id is not kept", "error", err)
	}
	defer func() { _ = instance.Release() }()
	o.InstanceID = instance.ID
	inspector, err := a.startInspector(ctx, &o, level)
	if err != nil {
		return err
	}
	defer inspector.close()
	edge := sealededge.New(o.Logger)
	defer edge.Close()
	for i := range o.Endpoints {
		if e := &o.Endpoints[i]; e.Seal != nil {
			e.SealedServer = edge.Server(e)
		}
	}
	options := screen.Options{JSON: a.logFormat == "json", Color: a.console.color, Level: level}
	if live := a.liveScreen(options); live != nil {
		defer live.Close()
		// The shutdown is printed as lines: a second Ctrl-C ends the process at any moment.
		defer context.AfterFunc(ctx, live.Leave)()
		o.Observer, o.PingInterval, o.Terminal = live, pingInterval, live
	} else {
		lines := screen.New(a.console.out, options)
		defer lines.Close()
		o.Observer = lines
	}
	lookups, cancel := context.WithCancel(ctx)
	addresses := &addressObserver{Observer: o.Observer, ctx: lookups, server: o.Address, resolver: net.DefaultResolver}
	defer addresses.lookups.Wait()
	defer cancel()
	o.Observer = &remedyObserver{addresses, settings}
	return withRemedy(listRefusal(agent.Run(ctx, o)), settings)
}

// pingInterval is how often the latency on the status screen is measured.
const pingInterval = 5 * time.Second

// liveScreen returns the status screen; nil without a terminal for it, and when the user asked for
// lines.
func (a *agentCommand) liveScreen(o screen.Options) *screen.Live {
	if a.noScreen || a.logFlagsGiven || a.console.env("TERM") == "dumb" {
		return nil
	}
	live, ok := screen.NewLive(a.console.out, o)
	if !ok {
		return nil
	}
	return live
}

func acquireInstance(env agentconfig.Getenv) (*agentconfig.Instance, error) {
	dir, err := agentconfig.StateDir(env)
	if err != nil {
		return agentconfig.NewInstance(), err
	}
	return agentconfig.AcquireInstance(dir)
}

func (a *agentCommand) parseLogFlags() (slog.Level, error) {
	if a.logFormat != "text" && a.logFormat != "json" {
		return 0, cli.Usagef("--log-format %q: must be text or json", a.logFormat)
	}
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError}
	level, ok := levels[a.logLevel]
	if !ok {
		return 0, cli.Usagef("--log-level %q: must be debug, info, warn or error", a.logLevel)
	}
	return level, nil
}

// logger returns the logger for diagnostics that the screen does not show. It discards everything
// unless --log-level is debug.
func (a *agentCommand) logger(level slog.Level) *slog.Logger {
	if level > slog.LevelDebug {
		return slog.New(slog.DiscardHandler)
	}
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	if a.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.console.err, options))
	}
	return slog.New(slog.NewTextHandler(a.console.err, options))
}

func (a *agentCommand) printWarnings(level slog.Level, warnings []string) {
	if level > slog.LevelWarn {
		return
	}
	for _, w := range warnings {
		if a.logFormat == "json" {
			slog.New(slog.NewJSONHandler(a.console.err, nil)).Warn(w)
			continue
		}
		_, _ = fmt.Fprintln(a.console.err, "fairlead: warning: "+w)
	}
}
