// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

// server is the service as options, environment and config file name it.
type server struct {
	url      *url.URL
	tls      *tls.Config
	learns   *trust.Authorities
	settings *agentconfig.Settings
}

// resolve reads the settings. Its errors name every setting that is wrong.
func (o *connectionOptions) resolve() (*server, error) {
	s, err := agentconfig.Load(agentconfig.Flags{Config: o.configFile, ServerURL: o.server, CAFile: o.caFile,
		CASHA256: o.caSHA256}, os.Getenv, strings.NewReader(""))
	if s == nil {
		return nil, err
	}
	at, noServer := account.ParseServerURL(s.ServerURL.Source, s.ServerURL.Text)
	if s.ServerURL.Text == "" {
		noServer = account.Invalid("server", account.NotShown, "no service is configured: give WithServer, or set "+
			agentconfig.EnvServerURL)
	}
	given := trust.Options{CAFile: s.CAFile.Text, CASHA256: s.CASHA256.Text}
	if o.roots != nil {
		given = trust.Options{}
	}
	if at != nil {
		given.Host = at.Hostname()
	}
	config, authorities, noTrust := given.Open()
	if noTrust != nil {
		noTrust = fmt.Errorf("reading the authorities to trust: %w", noTrust)
	}
	if err := errors.Join(err, noServer, noTrust); err != nil {
		return nil, err
	}
	if o.roots != nil {
		config.RootCAs = o.roots
	}
	return &server{url: at, tls: config, learns: authorities, settings: s}, nil
}

// agentOptions returns the options of the agent that serves the endpoint.
func (o *endpointOptions) agentOptions() (agent.Options, error) {
	s, err := o.resolve()
	if err != nil {
		return agent.Options{}, err
	}
	a := o.agent
	switch {
	case a.Token != nil:
		err = agentconfig.CheckAuthtoken("the authtoken", a.Token())
	case s.settings.AuthtokenSource() == "":
		err = &agentconfig.CredentialError{Msg: "no authtoken is configured: give WithAuthtoken, set " +
			agentconfig.EnvAuthtoken + ", or run `fairlead config add-authtoken -`"}
	}
	if err != nil {
		return agent.Options{}, err
	}
	a.DialServer, err = connectproxy.Dialer(os.Getenv, account.ServerAddress(s.url), nil, s.tls.RootCAs)
	if err != nil {
		return agent.Options{}, fmt.Errorf("reading the proxy's address: %w", err)
	}
	if a.Token == nil {
		a.Token = s.settings.Authtoken
	}
	a.Server, a.Address, a.TLS = s.url.String(), account.ServerAddress(s.url), s.tls
	a.Authorities = s.learns
	a.InstanceID, a.Logger = agentconfig.NewInstance().ID, o.log()
	return a, nil
}

func (o *connectionOptions) log() *slog.Logger {
	if o.logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.logger
}

// endpointAt returns the endpoint at the URL, without what serves it. Errors list all broken rules.
func (o *endpointOptions) endpointAt(rawURL string) (e agent.Endpoint, err error) {
	e = o.endpoint
	e.Binding = cmp.Or(e.Binding, account.BindingKubernetes)
	if e.Binding == account.BindingClusterset {
		return e, account.Invalid("binding", e.Binding, "must be kubernetes, internal or public")
	}
	e.URL, err = account.ParseBindingURL(e.Binding, rawURL)
	if err == nil && e.Upstream.Protocol != "" && e.URL.Scheme == "tcp" {
		err = account.Invalid("url", rawURL, "HTTP/2 is for http and https URLs; leave out WithHTTP2")
	}
	switch {
	case err != nil || o.seal == "" && o.callers == "" && o.clusters == "":
		return e, err
	case o.callers == "" && o.clusters != "":
		return e, account.Invalid(authority.FieldClusters, o.clusters, "is for WithSealCallers: give it, too")
	case o.seal == "":
		return e, account.Invalid(authority.FieldCallers, o.callers, "is for a sealed endpoint: give WithSeal, too")
	}
	if e.Upstream.Protocol != "" || e.HostMode != "" || e.TrafficPolicy != "" {
		return e, account.Invalid(authority.FieldSealed, o.seal, "the service does not read the requests of a sealed "+
			"endpoint: leave out WithHTTP2, WithHostHeader and WithTrafficPolicy")
	}
	if e.Seal, err = authority.OpenIdentity(o.seal, o.callers, o.clusters); err == nil {
		err = authority.CheckURL(o.seal, e.Seal, e.URL)
	}
	return e, err
}

// errNotYet is what Listen and Forward return when they stopped waiting for the service.
var errNotYet = errors.New("the service does not answer in time; is its address right?")
