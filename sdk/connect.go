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
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

// server is the service as options, environment and config file name it.
type server struct {
	url      *url.URL
	tls      *tls.Config
	settings *agentconfig.Settings
}

// resolve reads the settings. Its errors name every setting that is wrong.
func (o *connectionOptions) resolve() (*server, error) {
	s, err := agentconfig.Load(agentconfig.Flags{Config: o.configFile, ServerURL: o.server, CAFile: o.caFile,
		CASHA256: o.caSHA256}, os.Getenv, strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	if s.ServerURL.Text == "" {
		return nil, account.Invalid("server", account.NotShown, "no service is configured: give WithServer, or set "+
			agentconfig.EnvServerURL)
	}
	at, err := account.ParseServerURL(s.ServerURL.Source, s.ServerURL.Text)
	if err != nil {
		return nil, err
	}
	given := trust.Options{CAFile: s.CAFile.Text, CASHA256: s.CASHA256.Text}
	if o.roots != nil {
		given = trust.Options{}
	}
	config, err := given.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the authorities to trust: %w", err)
	}
	if o.roots != nil {
		config.RootCAs = o.roots
	}
	return &server{url: at, tls: config, settings: s}, nil
}

// agentOptions returns the options of the agent that serves the endpoint.
func (o *endpointOptions) agentOptions() (agent.Options, error) {
	s, err := o.resolve()
	if err != nil {
		return agent.Options{}, err
	}
	token := o.authtoken
	if token == nil {
		token = s.settings.Authtoken
	}
	switch {
	case o.authtoken != nil:
		err = agentconfig.CheckAuthtoken("the authtoken", token())
	case s.settings.AuthtokenSource() == "":
		err = &agentconfig.CredentialError{Msg: "no authtoken is configured: give WithAuthtoken, set " +
			agentconfig.EnvAuthtoken + ", or run `fairlead config add-authtoken -`"}
	}
	if err != nil {
		return agent.Options{}, err
	}
	dial, err := connectproxy.Dialer(os.Getenv, account.ServerAddress(s.url), nil)
	if err != nil {
		return agent.Options{}, fmt.Errorf("reading the proxy's address: %w", err)
	}
	instance := agentconfig.NewInstance()
	return agent.Options{Server: s.url.String(), Address: account.ServerAddress(s.url), TLS: s.tls, Token: token,
		InstanceID: instance.ID, Logger: o.log(), DialServer: dial, Dial: o.dialUpstream, UpstreamTLS: o.upstreamTLS,
		MaxBackoff: o.maxReconnectGap, DrainTimeout: o.drainTimeout}, nil
}

func (o *connectionOptions) log() *slog.Logger {
	if o.logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.logger
}

// endpoint returns the endpoint at the URL, without what serves it. Errors list every broken rule.
func (o *endpointOptions) endpoint(rawURL string) (agent.Endpoint, error) {
	o.binding = cmp.Or(o.binding, account.BindingKubernetes)
	if o.binding == account.BindingClusterset {
		return agent.Endpoint{}, account.Invalid("binding", o.binding, "must be kubernetes, internal or public")
	}
	u, err := account.ParseBindingURL(o.binding, rawURL)
	if err != nil {
		return agent.Endpoint{}, err
	}
	if o.upstreamProtocol != "" && u.Scheme == "tcp" {
		return agent.Endpoint{}, account.Invalid("url", rawURL,
			"HTTP/2 is for http and https URLs; leave out WithHTTP2")
	}
	return agent.Endpoint{URL: u, Binding: o.binding, Name: o.name, Description: o.description, Metadata: o.metadata,
		HostMode: o.hostHeader, PoolingEnabled: o.pooling, TrafficPolicy: o.trafficPolicy,
		ReplacePoolPolicy: o.replacePoolPolicy}, nil
}

// errNotYet is what Listen and Forward return when they stopped waiting for the service.
var errNotYet = errors.New("the service does not answer in time; is its address right?")
