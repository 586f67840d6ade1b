// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/agent/doctor"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

const (
	statusTimeout = 5 * time.Second // for the whole command
	maxCounted    = 1000            // objects of a list: its first page
)

// statusReport is what `fairlead status -o json` prints. Its hops are the settings, the service and
// the credentials.
type statusReport struct {
	path.Report
	ConfigFile    string `json:"config_file"`
	ServerVersion string `json:"server_version,omitempty"` // ServerVersion is told to agents only.
	AccountID     string `json:"account_id,omitempty"`
	Endpoints     *int   `json:"endpoints,omitempty"` // Endpoints and Sessions are at most maxCounted.
	Sessions      *int   `json:"sessions,omitempty"`
}

// status is `fairlead status`.
type status struct {
	machineDiagnosis
	report         statusReport
	accountOfToken string     // accountOfToken is empty unless the authtoken is accepted.
	accountOfKey   string     // accountOfKey is empty unless the API key may read endpoints.
	lists          []path.Hop // lists are endpoints and sessions.
}

func newStatus(c console) *cobra.Command {
	s := &status{machineDiagnosis: machineDiagnosis{console: c}}
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the settings, the service, the credentials and the account at a glance",
		Long: `Show which server, config file and authority are in use, whether the service answers and accepts the
authtoken and the API key, which are not shown, and how many endpoints and agents' sessions the account
has, if the API key may read them. Each line that is not good has its remedy.

Exit codes: 0 when nothing needed is broken, 1 when something is, 2 for wrong usage. A machine needs an
authtoken or an API key; what it has must be accepted.`,
		Example: "  fairlead status\n  fairlead status -o json | jq -r .account_id",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return cli.Usagef("--output %q: must be table or json", output)
			}
			s.check(cmd.Context())
			return s.print(output)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.flags.AuthtokenFile, "authtoken-file", "", "`FILE` that holds the authtoken")
	flags.StringVar(&s.flags.APIKeyFile, "api-key-file", "",
		"`FILE` that holds an API key ("+envAPIKey+" holds one too)")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	cli.CompleteValues(cmd, "output", "table", "json")
	addSettings(cmd, &s.flags)
	return cmd
}

func (s *status) print(output string) error {
	var err error
	s.report.Report = s.console.ownNames(s.report.Report)
	if output == "json" {
		err = cli.WriteJSON(s.console.out, s.report)
	} else {
		err = doctor.Print(s.console.out, s.report.Report, doctor.PrintOptions{Color: s.console.color,
			AllGood: "ready"})
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if !s.report.OK {
		return errBroken
	}
	return nil
}

// check fills in the report. After a broken setting, or without an answer of the service, the rest
// is not checked.
func (s *status) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	add := func(name string, check func(context.Context) path.Hop) {
		h := path.NotChecked()
		if s.report.Conclude(); s.report.OK {
			h = check(ctx)
		}
		s.report.Add(h.Named(name))
	}
	add("config", s.checkFile)
	add("server", s.checkAddress)
	add("authority", s.checkAuthority)
	add("connection", s.checkConnection)
	switch s.report.Conclude(); {
	case s.report.OK:
		s.checkCredentials(ctx)
	case s.settings != nil:
		s.report.Add(present(s.settings.AuthtokenSource()).Named("authtoken"),
			present(s.settings.APIKeySource()).Named("api-key"))
	}
	s.report.URL = s.o.Server
	s.report.Conclude()
}

// present returns the hop of a credential that is not shown to the service.
func present(source string) path.Hop {
	h := path.NotChecked()
	if h.Detail = "none is configured"; source != "" {
		h.Detail = "present, not checked (" + source + ")"
	}
	return h
}

func (s *status) checkFile(context.Context) path.Hop {
	var err error
	s.settings, err = loadSettings(s.flags, s.console)
	if err = withoutCredentialErrors(err); err != nil { // those of credentials are said where they are checked
		return path.Brokenf("correct it, and look at all settings:\nfairlead config check", "%v", err)
	}
	s.report.ConfigFile = s.settings.Path
	if _, err := os.Stat(s.settings.Path); err != nil {
		return path.OKf("%s is not there", s.settings.Path)
	}
	h := path.OKf("%s", s.settings.Path)
	for _, w := range s.settings.Warnings {
		h.Fix = w
	}
	return h
}

func (s *status) checkAddress(context.Context) path.Hop {
	server, err := serverURL(s.settings)
	if err != nil {
		return path.Brokenf("store it with the authtoken or the API key:\n"+
			"fairlead login --server https://HOST[:PORT] --ca-file FILE", "%v", err)
	}
	s.o.Server, s.o.Address, s.o.Token = server.String(), account.ServerAddress(server), s.settings.Authtoken
	var roots *x509.CertPool
	if config, _, err := trustConfig(s.settings); err == nil { // checkAuthority reports its error
		roots = config.RootCAs
	}
	if s.o.DialServer, err = connectproxy.Dialer(s.console.env, s.o.Address, nil, roots); err != nil {
		return path.Brokenf("correct the setting", "%v", err)
	}
	return path.OKf("%s (%s)", s.o.Server, s.settings.ServerURL.Source)
}

func (s *status) checkAuthority(context.Context) path.Hop {
	var err error
	if s.o.TLS, _, err = trustConfig(s.settings); err != nil {
		return path.Brokenf("correct the setting", "%v", err)
	}
	if trustSource(s.settings) == "" {
		return path.OKf("the system's")
	}
	return path.OKf("%s%s (%s)", s.settings.CAFile.Text, s.settings.CASHA256.Text, trustSource(s.settings))
}

func (s *status) checkConnection(ctx context.Context) path.Hop {
	start := time.Now()
	h := s.checkServer(ctx)
	if h.Status == path.OK {
		h.Detail = fmt.Sprintf("the service answers in %v", time.Since(start).Round(time.Millisecond))
	}
	return h
}

// checkCredentials asks the service about the credentials: about the API key first, so that the
// lists that it may read have no session of the authtoken's check.
func (s *status) checkCredentials(ctx context.Context) {
	key := s.checkAPIKey(ctx)
	authtoken := s.checkToken(ctx)
	if s.settings.AuthtokenSource()+s.settings.APIKeySource() == "" {
		authtoken.Status, key.Status = path.Broken, path.Broken
	}
	s.report.Add(authtoken.Named("authtoken"), key.Named("api-key"), s.checkAccount().Named("account"))
	s.report.Add(s.lists...)
}

// checkToken checks whether the service accepts the authtoken.
func (s *status) checkToken(ctx context.Context) path.Hop {
	source := s.settings.AuthtokenSource()
	if source == "" {
		h := present("")
		h.Fix = "for agents, store one:\nfairlead config add-authtoken -"
		return h
	}
	if err := agentconfig.CheckAuthtoken(source, s.settings.Authtoken()); err != nil {
		return path.Brokenf("store a good one:\nfairlead config add-authtoken -", "%v", err)
	}
	session, err := s.openSession(ctx)
	if err != nil {
		return s.refusedSession(err)
	}
	welcome := session.Welcome()
	s.accountOfToken, s.report.ServerVersion = welcome.AccountID, welcome.ServerVersion
	s.report.Hop("connection").Detail += ", version " + welcome.ServerVersion
	return path.OKf("accepted (%s)", source)
}

// checkAPIKey checks whether the service accepts the API key, and reads what it may read.
func (s *status) checkAPIKey(ctx context.Context) path.Hop {
	quiet := s.console
	quiet.err = io.Discard // the warnings are the config file's
	client, err := accountClient(quiet, s.flags, s.flags.APIKeyFile, "fairlead status")
	source := s.settings.APIKeySource()
	switch {
	case err == nil && client == nil:
		h := present("")
		h.Fix = "for fairlead api, store one:\nfairlead login"
		return h
	case err == nil:
		defer client.CloseIdleConnections()
		err = s.readLists(ctx, client)
	}
	switch {
	case err == nil:
		return path.OKf("accepted (%s)", source)
	case exitCode(err) != exitCredentials: // the service says nothing about the key
		return path.Brokenf(account.CodeOf(err).Info().Remedy, "%v", err)
	}
	return path.Brokenf("store a good one; the one in use is from "+source+":\nfairlead login", "%v", err)
}

// readLists counts endpoints and sessions. It fails when the service does not accept the API key.
func (s *status) readLists(ctx context.Context, client *apiclient.Client) error {
	mayNotRead := func(err error) bool { return account.CodeOf(err) == account.CodeScope }
	online, sessions := 0, 0
	endpoints, err := client.FirstEndpoints(ctx, maxCounted)
	if err != nil && !mayNotRead(err) {
		return err
	}
	for _, e := range endpoints.Endpoints {
		if e.Status == account.StatusOnline {
			online++
		}
	}
	s.accountOfKey = endpoints.AccountID
	n, about := len(endpoints.Endpoints), fmt.Sprintf(", %d online", online)
	s.report.Endpoints = s.addList("endpoints", n, about, err == nil)
	err = client.EachObject(ctx, resource.TunnelSessions, resource.At(resource.TunnelSessions).List.Field, nil,
		func(json.RawMessage) bool {
			sessions++
			return sessions < maxCounted
		})
	if err != nil && !mayNotRead(err) {
		return err
	}
	s.report.Sessions = s.addList("sessions", sessions, "", err == nil)
	return nil
}

// addList adds the hop of a list, and returns the number of its objects; nil when the API key may
// not read them.
func (s *status) addList(name string, n int, about string, readable bool) *int {
	h := path.NotChecked()
	switch {
	case !readable:
		h.Detail = "the API key may not read them"
		s.lists = append(s.lists, h.Named(name))
		return nil
	case n >= maxCounted:
		about = " or more" + about
	}
	s.lists = append(s.lists, path.OKf("%d%s", n, about).Named(name))
	return &n
}

// checkAccount compares the account of the authtoken with that of the API key.
func (s *status) checkAccount() path.Hop {
	if s.report.AccountID = cmp.Or(s.accountOfKey, s.accountOfToken); s.report.AccountID == "" {
		return path.NotChecked()
	}
	h := path.OKf("%s", s.report.AccountID)
	if s.accountOfToken != "" && s.accountOfToken != s.report.AccountID {
		h.Fix = "the authtoken is of another account, " + s.accountOfToken
	}
	return h
}
