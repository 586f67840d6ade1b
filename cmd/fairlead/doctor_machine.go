// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
	"github.com/fairlead-dev/fairlead/internal/version"
)

const (
	machineTimeout = 10 * time.Second // for each step
	maxSkew        = 2 * time.Minute  // past it, certificates and logs are hard to make sense of
)

// machineDiagnosis checks the way from this machine to the service, as an agent uses it.
type machineDiagnosis struct {
	console  console
	flags    agentconfig.Flags
	settings *agentconfig.Settings
	o        agent.Options
}

// diagnoseMachine checks the settings, the authtoken, the server's identity, the clock, and whether
// the service accepts the authtoken.
func diagnoseMachine(ctx context.Context, c console, flags agentconfig.Flags) path.Report {
	m := &machineDiagnosis{console: c, flags: flags}
	var r path.Report
	add := func(name string, check func(context.Context) path.Hop) {
		h := path.NotChecked()
		if r.Conclude(); r.OK {
			bounded, cancel := context.WithTimeout(ctx, machineTimeout)
			defer cancel()
			h = check(bounded)
		}
		r.Add(h.Named(name))
	}
	add("settings", m.checkSettings)
	add("authtoken", m.checkAuthtoken)
	add("server", m.checkServer)
	add("clock", m.checkClock)
	add("session", m.checkSession)
	r.URL = m.o.Server
	r.Conclude()
	return r
}

func (m *machineDiagnosis) checkSettings(context.Context) path.Hop {
	var err error
	if m.settings, err = loadSettings(m.flags, m.console); err != nil {
		return path.Brokenf("correct it, and look at all settings:\nfairlead config check", "%v", err)
	}
	if m.settings.ServerURL.Text == "" {
		return path.Brokenf("give --server https://HOST[:PORT], set "+agentconfig.EnvServerURL+
			", or write server_url into the config file", "no server is configured")
	}
	h := path.OKf("%s (%s)", m.settings.ServerURL.Text, m.settings.ServerURL.Source)
	h.Evidence = append(h.Evidence, "config file "+m.settings.Path)
	for _, w := range m.settings.Warnings {
		h.Detail += "; " + w
	}
	return h
}

func (m *machineDiagnosis) checkAuthtoken(context.Context) path.Hop {
	var err error
	if m.o, err = connectionOptions(m.settings); err != nil {
		if _, ok := errors.AsType[*agentconfig.CredentialError](err); ok {
			return path.Brokenf("store one:\nfairlead config add-authtoken -", "%v", err)
		}
		return path.Brokenf("correct the setting", "%v", err)
	}
	if m.o.DialServer, err = connectproxy.Dialer(m.console.env, m.o.Address, nil, m.o.TLS.RootCAs); err != nil {
		return path.Brokenf("correct the setting", "%v", err)
	}
	return path.OKf("present (%s)", m.settings.AuthtokenSource())
}

// dial connects to the server and verifies its identity. What ends TLS before the server's API may
// not know TLS 1.3.
func (m *machineDiagnosis) dial(ctx context.Context, protocol string) (*tls.Conn, error) {
	raw, err := m.o.DialServer(ctx, "tcp", m.o.Address)
	if err != nil {
		return nil, err
	}
	config := m.o.TLS.Clone()
	config.NextProtos, config.MinVersion = []string{protocol}, tls.VersionTLS13
	if protocol != tunnel.ALPN {
		config.MinVersion = tls.VersionTLS12
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(m.o.Address)
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func (m *machineDiagnosis) checkServer(ctx context.Context) path.Hop {
	conn, err := m.dial(ctx, tunnel.ALPN)
	p := trust.ProblemOf(err)
	if err != nil && p == trust.NoProblem {
		if api, apiErr := m.dial(ctx, "http/1.1"); apiErr == nil {
			conn, err = api, nil // the session's check says how tunnels get through
		} else if p = trust.ProblemOf(apiErr); p != trust.NoProblem {
			err = apiErr
		}
	}
	if err == nil {
		_ = conn.Close()
		return path.OKf("%s answers, and is the one that is trusted", m.o.Address)
	}
	if p != trust.NoProblem {
		fix := cmp.Or(identityRemedy(p, m.settings),
			"compare the clocks of both machines, and renew the server's certificate")
		return path.Brokenf(fix, "%s cannot be trusted: %v", m.o.Address, err)
	}
	return path.Brokenf(
		"see that fairlead-server runs there and that this machine reaches it; HTTPS_PROXY, ALL_PROXY and NO_PROXY "+
			"are honoured",
		"%s does not answer as a fairlead-server: %v", m.o.Address, err)
}

// checkClock compares this machine's clock with the Date of an answer of the server's API.
func (m *machineDiagnosis) checkClock(ctx context.Context) path.Hop {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.dial(ctx, "http/1.1")
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, m.o.Server+"/", nil)
	if err != nil {
		return path.Unknownf("%v", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return path.Unknownf("the server's API does not answer: %v", err)
	}
	_ = res.Body.Close()
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return path.Unknownf("the server's answer has no date")
	}
	if skew := time.Since(date); skew.Abs() > maxSkew {
		return path.Brokenf("set both clocks by NTP", "this machine's clock and the server's differ by %v",
			skew.Abs().Round(time.Second))
	}
	return path.OKf("as the server's")
}

func (m *machineDiagnosis) checkSession(ctx context.Context) path.Hop {
	s, err := m.openSession(ctx)
	if err != nil {
		return m.refusedSession(err)
	}
	w := s.Welcome()
	h := path.OKf("the service takes the authtoken (account %s, version %s)", w.AccountID, w.ServerVersion)
	if c := s.Carrier(); c.Name == tunnel.CarrierWebSocket {
		h.Detail += "; carried by WebSockets, which cost more: " + c.Reason
	} else {
		h.Detail += "; carried natively (" + c.Name + ")"
	}
	return h
}

// openSession opens a session as an agent does, and closes it. It takes two failures to give up, as
// the client may choose a WebSocket after the first.
func (m *machineDiagnosis) openSession(ctx context.Context) (*tunnel.Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, down, final := make(chan *tunnel.Session, 1), make(chan error, 2), make(chan error, 1)
	client := tunnel.NewClient(tunnel.ClientConfig{
		Address: m.o.Address, TLS: m.o.TLS, DialContext: m.o.DialServer, Connections: 1,
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: m.o.Token(), ClientVersion: version.String(),
				OS:         runtime.GOOS,
				InstanceID: agentconfig.NewInstance().ID}
		},
		OnUp: func(_ context.Context, s *tunnel.Session) error {
			up <- s
			<-ctx.Done()
			return ctx.Err()
		},
		OnDown: func(err error, _ time.Duration) {
			select {
			case down <- err:
			default:
			}
		},
	})
	go func() { final <- client.Run(ctx) }()
	var err error
	for range 2 {
		select {
		case s := <-up:
			cancel()
			<-final //nolint:errcheck // it ends because it was cancelled
			return s, nil
		case err = <-down:
		case refused := <-final:
			return nil, cmp.Or(refused, err, ctx.Err())
		}
	}
	cancel()
	<-final //nolint:errcheck // it ends because it was cancelled
	return nil, err
}

// refusedSession returns the hop of an agent's session that the service refused. An authtoken that may
// only connect is accepted, and refused to agents.
func (m *machineDiagnosis) refusedSession(err error) path.Hop {
	fix := "look at the server's log"
	var refused *tunnel.Error
	switch {
	case !errors.As(err, &refused):
	case refused.Code == tunnel.CodeForbidden:
		return path.OKf("the service knows the authtoken, which may not bind: it is for fairlead connect or operators")
	case refused.Code == tunnel.CodeBadToken, refused.Code == tunnel.CodeTokenRevoked:
		fix = "store a good one; the one in use is from " + m.settings.AuthtokenSource() +
			":\nfairlead config add-authtoken -"
	}
	return path.Brokenf(fix, "the service gives no session: %v", err)
}
