// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"context"
	"net"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// Agent is a minimal tunnel client that binds one endpoint.
type Agent struct {
	*tunnel.Client
	Stop  func()                  // stops it and waits for its end
	Ended <-chan error            // gets what Run returned
	Bound chan tunnel.Bound       // gets the answer to every bind
	Lines chan tunnel.RequestLine // gets request lines while there is room
}

// StartAgent binds one endpoint and relays its streams to the upstream's address.
func (r *Server) StartAgent(b tunnel.Bind, upstream string) *Agent {
	return r.StartAgentWith(r.Authtoken, b, RelayTo(upstream))
}

// RelayTo returns a function that relays streams to the upstream's address.
func RelayTo(upstream string) func(context.Context, *tunnel.Stream) {
	return func(ctx context.Context, st *tunnel.Stream) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", upstream)
		if err != nil {
			_ = st.Refuse(tunnel.RefusedUpstream)
			return
		}
		if err := st.Accept(); err != nil {
			_ = conn.Close()
			return
		}
		_, _ = relay.Join(ctx, st, conn.(*net.TCPConn), relay.Options{})
	}
}

// StartAgentWith binds one endpoint with the token and passes its streams to serve.
func (r *Server) StartAgentWith(
	token string, b tunnel.Bind, serve func(context.Context, *tunnel.Stream), change ...func(*tunnel.ClientConfig),
) *Agent {
	r.T.Helper()
	a := &Agent{Bound: make(chan tunnel.Bound, 16), Lines: make(chan tunnel.RequestLine, 256)}
	var mu sync.Mutex
	resume := b.ResumeSecret
	cfg := tunnel.ClientConfig{
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClientVersion: "0.0.0-test", OS: "linux",
				InstanceID: "test"}
		},
		OnUp: func(ctx context.Context, s *tunnel.Session) error {
			mu.Lock()
			defer mu.Unlock()
			b := b
			b.ResumeSecret = resume
			got, err := s.Bind(ctx, b)
			if err != nil {
				return err
			}
			resume = got.ResumeSecret
			a.Bound <- got
			return nil
		},
		OnStream: func(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) { serve(ctx, st) },
		OnRequestLine: func(l tunnel.RequestLine) {
			select {
			case a.Lines <- l:
			default:
			}
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	a.Client, a.Stop, a.Ended = r.RunTunnelClient(cfg)
	return a
}
