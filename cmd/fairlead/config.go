// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

func newConfig(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Store and check this machine's settings",
		Long: `Store and check this machine's settings. The config file is $XDG_CONFIG_HOME/fairlead/config.yaml,
by default ~/.config/fairlead/config.yaml; --config or FAIRLEAD_CONFIG name another. All its keys are optional:

  server_url: https://fairlead.example.net:8443
  authtoken: flt_…
  api_key: flk_…         # what fairlead login stores
  ca_file: ca.crt        # relative to the config file; or
  ca_sha256: 3f9c…       # the fingerprint that fairlead-server prints
  endpoints: […]         # and tunnels: what fairlead start serves; see fairlead start --help`,
		Example: `  fairlead config add-authtoken -
  fairlead config check`,
	}
	cmd.AddCommand(newAddAuthtoken(c), newConfigCheck(c))
	return cmd
}

func newAddAuthtoken(c console) *cobra.Command {
	var flags agentconfig.Flags
	cmd := &cobra.Command{
		Use:   "add-authtoken TOKEN|-",
		Short: "Store the authtoken of this machine",
		Long: `Store the authtoken in the config file, which only its owner can read afterwards. Other keys of the
file stay. With - the token is read from the terminal without echo, or from standard input, and
appears neither in the shell's history nor in the process list.

--server, --ca-file and --ca-sha256 are stored too, so that one command sets up a machine.`,
		Example: `  fairlead config add-authtoken -
  fairlead config add-authtoken - --server https://fairlead.example.net:8443 --ca-file ca.crt
  pass show fairlead | fairlead config add-authtoken -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return cli.Usagef("%s needs one argument, the authtoken, or - to read it from standard input",
				cmd.CommandPath())
		},
		RunE: func(_ *cobra.Command, args []string) error { return addAuthtoken(c, flags, args[0]) },
	}
	addSettings(cmd, &flags)
	return cmd
}

func addAuthtoken(c console, flags agentconfig.Flags, arg string) error {
	path, _, err := agentconfig.Path(flags.Config, c.env)
	if err != nil {
		return &cli.UsageError{Message: err.Error()}
	}
	values, err := settingsToStore(flags)
	if err != nil {
		return err
	}
	token, err := tokenArgument(c, arg)
	if err != nil {
		return err
	}
	values[agentconfig.KeyAuthtoken] = token
	if err := agentconfig.Save(path, values); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "authtoken stored in %s\n", path)
	return err
}

// tokenArgument returns the authtoken of the argument, which may be - for the terminal or standard
// input.
func tokenArgument(c console, arg string) (string, error) {
	if arg != "-" {
		token := strings.TrimSpace(arg)
		return token, agentconfig.CheckAuthtoken("the argument", token)
	}
	text, typed, err := c.secret("authtoken: ")
	if err != nil {
		return "", fmt.Errorf("reading the authtoken from the terminal: %w", err)
	}
	if typed {
		return agentconfig.ReadAuthtoken("the terminal", strings.NewReader(text))
	}
	return agentconfig.ReadAuthtoken("standard input", c.in)
}

// settingsToStore validates the flags that are stored. --ca-file and --ca-sha256 replace each
// other.
func settingsToStore(f agentconfig.Flags) (map[string]string, error) {
	values := map[string]string{}
	if f.ServerURL != "" {
		u, err := account.ParseServerURL("--server", f.ServerURL)
		if err != nil {
			return nil, err
		}
		values[agentconfig.KeyServerURL] = u.String()
	}
	if f.CAFile == "" && f.CASHA256 == "" {
		return values, nil
	}
	if _, err := (trust.Options{CAFile: f.CAFile, CASHA256: f.CASHA256}).ClientConfig(); err != nil {
		return nil, &cli.UsageError{Message: err.Error()}
	}
	values[agentconfig.KeyCAFile], values[agentconfig.KeyCASHA256] = "", f.CASHA256
	if f.CAFile != "" {
		abs, err := filepath.Abs(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("finding --ca-file: %w", err)
		}
		values[agentconfig.KeyCAFile] = abs
	}
	return values, nil
}

func newConfigCheck(c console) *cobra.Command {
	var flags agentconfig.Flags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show the settings in force, where each comes from, and what is wrong with them",
		Long: `Show the settings in force and where each comes from, without the authtoken and the API key
themselves, and the endpoints and tunnels of the config file. Their traffic policies are checked, too. Fails when
something is missing or wrong. Connects to nothing.`,
		Example: "  fairlead config check",
		Args:    cli.NoArguments,
		RunE:    func(*cobra.Command, []string) error { return checkConfig(c, flags) },
	}
	addSettings(cmd, &flags)
	return cmd
}

func checkConfig(c console, flags agentconfig.Flags) error {
	s, err := loadSettings(flags, c)
	if s == nil {
		return err
	}
	show := func(name string, v agentconfig.Value) {
		if v.Text != "" {
			_, _ = fmt.Fprintf(c.out, "%-12s %s (%s)\n", name, v.Text, v.Source)
		}
	}
	show("server", s.ServerURL)
	if source := s.AuthtokenSource(); source != "" {
		show("authtoken", agentconfig.Value{Text: "present", Source: source})
	}
	if source := s.APIKeySource(); source != "" {
		show("API key", agentconfig.Value{Text: "present", Source: source})
	}
	show("ca file", s.CAFile)
	show("ca sha256", s.CASHA256)
	if s.CAFile.Text == "" && s.CASHA256.Text == "" {
		_, _ = fmt.Fprintf(c.out, "%-12s the system's\n", "authorities")
	}
	for _, w := range s.Warnings {
		_, _ = fmt.Fprintln(c.err, "fairlead: warning: "+w)
	}
	_, missing := connectionOptions(s)
	if s.AuthtokenSource() == "" && s.APIKeySource() != "" { // a machine for fairlead api alone
		missing = withoutCredentialErrors(missing)
	}
	return asUsageErrors(errors.Join(err, missing, checkStoredKey(s), errors.Join(checkSpecs(c, s)...)))
}

// checkSpecs prints the endpoints and tunnels of the config file, and returns all their errors.
func checkSpecs(c console, s *agentconfig.Settings) []error {
	specs, errs := s.EndpointSpecs()
	for _, spec := range specs {
		e, broken := validateFileSpec(spec)
		errs = append(errs, policyErrors(spec, e, len(broken) == 0)...)
		if len(broken) > 0 || spec.Name == "" {
			continue
		}
		_, _ = fmt.Fprintf(c.out, "%-12s %s -> %s\n", spec.Title(), e.DisplayName(), e.Upstream)
	}
	_, broken := validateSpecs(specs, specs)
	return append(errs, broken...)
}

// policyErrors checks the traffic policy of a spec as this version of the program does, for any URL
// unless that of the endpoint is valid. The service decides when the endpoint is started.
func policyErrors(spec *agentconfig.EndpointSpec, e agent.Endpoint, valid bool) []error {
	if e.TrafficPolicy == "" || spec.Sealed != "" { // the agent's, which was checked
		return nil
	}
	var o trafficpolicy.Options
	if valid {
		o.Scheme, o.Binding = e.URL.Scheme, e.Binding
	}
	_, mistakes := trafficpolicy.Check(e.TrafficPolicy, o)
	errs := make([]error, len(mistakes))
	for i, p := range mistakes {
		errs[i] = &agentconfig.SpecError{Spec: spec, Field: "traffic_policy", Msg: "traffic_policy: " + p.String()}
		if spec.TrafficPolicyFile != "" {
			errs[i] = errors.New(mistakeLine(spec.TrafficPolicyFile, p.Line, p.Column, p.Msg))
		}
	}
	return errs
}
