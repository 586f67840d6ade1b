// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/connectproxy"
	"github.com/fairlead-dev/fairlead/internal/doctor"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

const (
	machineTimeout = 10 * time.Second // of each step
	maxSkew        = 2 * time.Minute  // past it, certificates and logs are hard to make sense of
)

// machine is the walk from this machine to the service, as an agent goes it.
type machine struct {
	console  console
	flags    agentconfig.Flags
	settings *agentconfig.Settings
	o        agent.Options
}

// diagnoseMachine checks settings, authtoken, the server's identity, the clock, and whether the
// service takes the authtoken.
func diagnoseMachine(ctx context.Context, c console, flags agentconfig.Flags) doctor.Report {
	m := &machine{console: c, flags: flags}
	var r doctor.Report
	for _, step := range []struct {
		name string
		look func(context.Context) doctor.Hop
	}{
		{"settings", m.lookAtSettings}, {"authtoken", m.lookAtAuthtoken}, {"server", m.lookAtServer},
		{"clock", m.lookAtClock}, {"session", m.lookAtSession},
	} {
		h := doctor.Hop{Status: doctor.Skipped, Detail: "not checked"}
		if r.Conclude(); r.OK {
			bounded, cancel := context.WithTimeout(ctx, machineTimeout)
			h = step.look(bounded)
			cancel()
		}
		h.Name = step.name
		r.Hops = append(r.Hops, h)
	}
	r.URL = m.o.Server
	r.Conclude()
	return r
}

func found(status doctor.Status, fix, format string, args ...any) doctor.Hop {
	return doctor.Hop{Status: status, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func (m *machine) lookAtSettings(context.Context) doctor.Hop {
	var err error
	if m.settings, err = loadSettings(m.flags, m.console); err != nil {
		return found(doctor.Broken, "correct it, and look at all settings:\nfairlead config check", "%v", err)
	}
	if m.settings.ServerURL.Text == "" {
		return found(doctor.Broken, "give --server https://HOST[:PORT], set "+agentconfig.EnvServerURL+
			", or write server_url into the config file", "no server is configured")
	}
	h := found(doctor.OK, "", "%s (%s)", m.settings.ServerURL.Text, m.settings.ServerURL.Source)
	h.Evidence = append(h.Evidence, "config file "+m.settings.Path)
	for _, w := range m.settings.Warnings {
		h.Detail += "; " + w
	}
	return h
}

func (m *machine) lookAtAuthtoken(context.Context) doctor.Hop {
	var err error
	if m.o, err = connectionOptions(m.settings); err != nil {
		var credential *agentconfig.CredentialError
		if errors.As(err, &credential) {
			return found(doctor.Broken, "store one:\nfairlead config add-authtoken -", "%v", err)
		}
		return found(doctor.Broken, "correct the setting", "%v", err)
	}
	if m.o.DialServer, err = connectproxy.Dialer(m.console.env, nil); err != nil {
		return found(doctor.Broken, "correct HTTPS_PROXY", "%v", err)
	}
	return found(doctor.OK, "", "present (%s)", m.settings.AuthtokenSource())
}

// dial connects to the server and verifies who it is.
func (m *machine) dial(ctx context.Context, protocols ...string) (*tls.Conn, error) {
	raw, err := m.o.DialServer(ctx, "tcp", m.o.Address)
	if err != nil {
		return nil, err
	}
	config := m.o.TLS.Clone()
	config.NextProtos, config.MinVersion = protocols, tls.VersionTLS13
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

func (m *machine) lookAtServer(ctx context.Context) doctor.Hop {
	conn, err := m.dial(ctx, tunnel.ALPN)
	if err == nil {
		_ = conn.Close()
		return found(doctor.OK, "", "%s answers, and is the one that is trusted", m.o.Address)
	}
	if p := trust.ProblemOf(err); p != trust.NoProblem {
		fix := identityRemedy(p, m.settings)
		if fix == "" {
			fix = "compare the clocks of both machines, and renew the server's certificate"
		}
		return found(doctor.Broken, fix, "%s cannot be trusted: %v", m.o.Address, err)
	}
	return found(doctor.Broken,
		"see that fairlead-server runs there and that this machine reaches it; HTTPS_PROXY and NO_PROXY are honoured",
		"%s does not answer as a fairlead-server: %v", m.o.Address, err)
}

// lookAtClock compares this machine's clock with the Date of an answer of the server's API.
func (m *machine) lookAtClock(ctx context.Context) doctor.Hop {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.dial(ctx, "http/1.1")
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, m.o.Server+"/", nil)
	if err != nil {
		return found(doctor.Unknown, "", "%v", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return found(doctor.Unknown, "", "the server's API does not answer: %v", err)
	}
	_ = res.Body.Close()
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return found(doctor.Unknown, "", "the server does not tell the time")
	}
	if skew := time.Since(date); skew.Abs() > maxSkew {
		return found(doctor.Broken, "set both clocks by NTP", "this machine's clock and the server's differ by %v",
			skew.Abs().Round(time.Second))
	}
	return found(doctor.OK, "", "as the server's")
}

// lookAtSession says hello as an agent does, and goodbye.
func (m *machine) lookAtSession(ctx context.Context) doctor.Hop {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, down := make(chan *tunnel.Session, 1), make(chan error, 1)
	tell := func(err error) { // the first counts
		select {
		case down <- err:
		default:
		}
	}
	client := tunnel.NewClient(tunnel.ClientConfig{
		Address: m.o.Address, TLS: m.o.TLS, DialContext: m.o.DialServer, Connections: 1,
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: m.o.Token(), ClientVersion: version.String(), OS: runtime.GOOS,
				InstanceID: agentconfig.NewInstance().ID}
		},
		OnUp: func(_ context.Context, s *tunnel.Session) error {
			up <- s
			<-ctx.Done()
			return ctx.Err()
		},
		OnDown: func(err error, _ time.Duration) { tell(err) },
	})
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if refused := client.Run(ctx); refused != nil {
			tell(refused)
		}
	}()
	select {
	case s := <-up:
		w := s.Welcome()
		cancel()
		<-ended
		return found(doctor.OK, "", "the service takes the authtoken (account %s, version %s)", w.AccountID, w.ServerVersion)
	case err = <-down:
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	<-ended
	return m.noSession(err)
}

func (m *machine) noSession(err error) doctor.Hop {
	fix := "look at the server's log"
	var refused *tunnel.Error
	if errors.As(err, &refused) && (refused.Code == tunnel.CodeBadToken || refused.Code == tunnel.CodeTokenRevoked) {
		fix = "store a good one; the one in use is from " + m.settings.AuthtokenSource() +
			":\nfairlead config add-authtoken -"
	}
	return found(doctor.Broken, fix, "the service gives no session: %v", err)
}
