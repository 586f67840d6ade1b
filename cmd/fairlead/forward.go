// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/connectproxy"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// forward is one `fairlead http`, `tcp`, `tunnel` or `start`.
type forward struct {
	console  console
	scheme   string        // of http and tcp
	endpoint endpointFlags // of http and tcp
	settings agentconfig.Flags
	format   string
	level    string
	noScreen bool

	linesAsked bool // a flag about lines was given
}

func addProtocol(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "upstream-protocol", agent.ProtocolHTTP1, "what the upstream speaks: http1 or http2 (gRPC)")
	cli.CompleteValues(cmd, "upstream-protocol", agent.ProtocolHTTP1, agent.ProtocolHTTP2)
}

func (f *forward) addFlags(cmd *cobra.Command) {
	addSettings(cmd, &f.settings)
	flags := cmd.Flags()
	flags.StringVar(&f.settings.AuthtokenFile, "authtoken-file", "",
		"`FILE` that holds the authtoken, read again for each session; - for standard input")
	flags.StringVar(&f.format, "log-format", "text",
		"text, or json: one JSON object a line; given, there is no status screen")
	flags.StringVar(&f.level, "log-level", "info",
		"debug, info, warn (no request lines) or error; given, there is no status screen")
	cli.CompleteValues(cmd, "log-format", "text", "json")
	cli.CompleteValues(cmd, "log-level", "debug", "info", "warn", "error")
	flags.BoolVar(&f.noScreen, "no-screen", false,
		"print lines on a terminal, too, as to a file; default there is a status screen")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		f.linesAsked = cmd.Flags().Changed("log-format") || cmd.Flags().Changed("log-level")
	}
}

// oneTarget is the Args of http, tcp and tunnel.
func oneTarget(forms, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usagef("%s needs one argument, %s, and got %d; e.g. %s", cmd.CommandPath(), forms, len(args), example)
	}
}

// serveOne serves what read makes of arguments and flags.
func (f *forward) serveOne(ctx context.Context, read func() (agent.Endpoint, error)) error {
	e, err := read()
	return f.run(ctx, func(*agentconfig.Settings) ([]agent.Endpoint, error) { return []agent.Endpoint{e}, err })
}

// run serves what choose makes of the settings.
func (f *forward) run(ctx context.Context, choose func(*agentconfig.Settings) ([]agent.Endpoint, error)) error {
	asJSON := f.format == "json"
	if err := f.start(ctx, choose); err != nil {
		return &reported{err, asJSON}
	}
	return nil
}

func (f *forward) start(ctx context.Context, choose func(*agentconfig.Settings) ([]agent.Endpoint, error)) error {
	level, err := f.output()
	if err != nil {
		return err
	}
	settings, err := loadSettings(f.settings, f.console)
	if err != nil {
		return err
	}
	endpoints, err := choose(settings)
	if err != nil {
		return err
	}
	o, err := connection(settings)
	if err != nil {
		return err
	}
	o.Endpoints, o.Logger = endpoints, f.logger(level)
	if o.DialServer, err = connectproxy.Dialer(f.console.env, nil); err != nil {
		return &usageError{err.Error()}
	}
	f.warn(level, settings.Warnings)
	return f.serve(ctx, o, level, settings)
}

// serve runs the agent with its screen and its instance id.
func (f *forward) serve(ctx context.Context, o agent.Options, level slog.Level, settings *agentconfig.Settings) error {
	instance, err := acquireInstance(f.console.env)
	if err != nil {
		o.Logger.Debug("the instance id is not kept", "error", err)
	}
	defer func() { _ = instance.Release() }()
	o.InstanceID = instance.ID
	options := screen.Options{JSON: f.format == "json", Color: f.console.color, Level: level}
	if live := f.liveScreen(options); live != nil {
		defer live.Close()
		// the goodbye is said in lines: a second Ctrl-C ends the process wherever it is
		defer context.AfterFunc(ctx, live.Leave)()
		o.Observe, o.PingInterval, o.OnPanic = live.Show, pingEvery, live.Leave
		return withRemedy(listRefusal(agent.Run(ctx, o), o.Endpoints), settings)
	}
	display := screen.New(f.console.out, options)
	defer display.Close()
	o.Observe = display.Show
	return withRemedy(listRefusal(agent.Run(ctx, o), o.Endpoints), settings)
}

// pingEvery is how often the status screen's latency is measured.
const pingEvery = 5 * time.Second

// liveScreen returns the status screen where there is a terminal for it and nobody asked for lines.
func (f *forward) liveScreen(o screen.Options) *screen.Live {
	if f.noScreen || f.linesAsked || f.console.env("TERM") == "dumb" {
		return nil
	}
	live, ok := screen.NewLive(f.console.out, o)
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

// output checks the flags about output.
func (f *forward) output() (slog.Level, error) {
	if f.format != "text" && f.format != "json" {
		return 0, usagef("--log-format %q: must be text or json", f.format)
	}
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError}
	level, ok := levels[f.level]
	if !ok {
		return 0, usagef("--log-level %q: must be debug, info, warn or error", f.level)
	}
	return level, nil
}

// logger is for diagnostics: what the screen does not say. They are printed at --log-level debug
// only.
func (f *forward) logger(level slog.Level) *slog.Logger {
	if level > slog.LevelDebug {
		return slog.New(slog.DiscardHandler)
	}
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(f.console.err, options))
	}
	return slog.New(slog.NewTextHandler(f.console.err, options))
}

func (f *forward) warn(level slog.Level, warnings []string) {
	if level > slog.LevelWarn {
		return
	}
	for _, w := range warnings {
		if f.format == "json" {
			slog.New(slog.NewJSONHandler(f.console.err, nil)).Warn(w)
			continue
		}
		_, _ = fmt.Fprintln(f.console.err, "fairlead: warning: "+w)
	}
}

// loadSettings resolves the settings; what is wrong with them is wrong usage.
func loadSettings(flags agentconfig.Flags, c console) (*agentconfig.Settings, error) {
	s, err := agentconfig.Load(flags, c.env, c.in)
	return s, allOf(err)
}

// allOf makes of an error about settings, perhaps a joined one, a usage error or several; nil of
// nil.
func allOf(err error) error {
	if err == nil {
		return nil
	}
	all := parts(err)
	for i, e := range all {
		if exitCode(e) == exitOther {
			all[i] = &usageError{e.Error()}
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return &usageErrors{all}
}

// parts returns the errors that err joins, or err.
func parts(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // a joined error itself
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, parts(e)...)
	}
	return all
}

// connection turns settings into the part of the agent's options that says whom to call, and
// demands what is missing. The error names everything that is.
func connection(s *agentconfig.Settings) (agent.Options, error) {
	server, noServer := serverOf(s)
	var noToken error
	if s.AuthtokenSource() == "" {
		noToken = &agentconfig.CredentialError{Msg: "no authtoken is configured: " + agentconfig.AuthtokenHint}
	}
	tlsConfig, noTrust := trust.Options{CAFile: s.CAFile.Text, CASHA256: s.CASHA256.Text}.ClientConfig()
	if noTrust != nil {
		noTrust = usagef("%s: %v", trustSource(s), noTrust)
	}
	if err := errors.Join(noServer, noToken, noTrust); err != nil {
		return agent.Options{}, allOf(err)
	}
	return agent.Options{Server: server.String(), Address: address(server), TLS: tlsConfig, Token: s.Authtoken}, nil
}

func serverOf(s *agentconfig.Settings) (*url.URL, error) {
	if s.ServerURL.Text != "" {
		return account.ParseServerURL(s.ServerURL.Source, s.ServerURL.Text)
	}
	where := ""
	if s.Path != "" {
		where = ", or write server_url into " + s.Path
	}
	return nil, usagef("no server is configured: give --server https://HOST[:PORT], set %s%s", agentconfig.EnvServerURL,
		where)
}

// address returns host:port of a server's URL.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(u.Hostname(), "[]"), port)
}
