// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestReconnect_PresentsLatestResumeSecret(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", asTCP)
	for i := range 4 {
		b := receive(t, svc.binds, "bind")
		want := ""
		if i > 0 {
			want = fmt.Sprintf("secret-%d", i)
		}
		if b.ResumeSecret != want {
			t.Errorf("bind %d presents %q, want %q", i, b.ResumeSecret, want)
		}
		if online := next[agent.Online](r); online.Reconnected != (i > 0) || online.EndpointID != endpointID {
			t.Errorf("bind %d: %+v", i, online)
		}
		if i == 0 { // both connections of the first session, so that there are tickets
			receive(t, svc.resumed, "first connection")
			receive(t, svc.resumed, "second connection")
		}
		receive(t, svc.bound, "session")
		svc.cut()
	}
	for range len(svc.resumed) {
		if !<-svc.resumed {
			t.Error("a connection began with a full handshake")
		}
	}
	for _, lost := range remaining[agent.Retrying](r) {
		if !lost.WasOnline {
			t.Errorf("%+v", lost)
		}
	}
}

func TestReconnect_ReadsTokenAgain(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	tokens := make(chan string, 10)
	svc.hello = func(h tunnel.Hello) error { tokens <- h.Token; return nil }
	svc.start()
	var calls atomic.Int64
	run(t, svc, "8080", func(o *agent.Options) {
		o.Token = func() string {
			return fmt.Sprintf("flt_%d", calls.Add(1))
		}
	})
	for i := 1; i <= 2; i++ {
		receive(t, svc.bound, "session")
		if got := receive(t, tokens, "hello"); got != fmt.Sprintf("flt_%d", i) {
			t.Errorf("session %d uses %q", i, got)
		}
		svc.cut()
	}
}

func TestFailure_TakenURLAtStartOnly(t *testing.T) {
	t.Parallel()
	taken := &tunnel.Error{Code: tunnel.CodeURLTaken, Msg: "held by session ts-9 from 10.1.2.3", Detail: "ERR_FL_1060"}
	t.Run("at start", func(t *testing.T) {
		t.Parallel()
		svc := newService(t)
		svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
			return tunnel.Bound{}, taken
		}
		svc.start()
		err := run(t, svc, "8080", nil).end()
		wantFailure(t, err, agent.ReasonURLTaken, "held by session ts-9 from 10.1.2.3 (ERR_FL_1060)")
		if n := len(svc.binds); n != 1 {
			t.Errorf("%d binds, want 1", n)
		}
	})
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		svc := newService(t)
		var binds atomic.Int64
		svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
			if n := binds.Add(1); n > 1 && n < 5 {
				return tunnel.Bound{}, taken
			}
			return svc.grant(), nil
		}
		svc.start()
		r := run(t, svc, "8080", nil)
		receive(t, svc.bound, "session")
		next[agent.Online](r)
		svc.cut()
		for {
			if e := next[agent.Retrying](r); strings.Contains(e.Cause, "held by session ts-9") {
				break
			}
		}
		receive(t, svc.bound, "session after the URL was free")
		if again := remaining[agent.Retrying](r); len(again) > 0 {
			t.Errorf("the same cause was reported again: %+v", again)
		}
	})
}

func wantFailure(t *testing.T, err error, reason agent.Reason, text string) {
	t.Helper()
	var f *agent.Failure
	if !errors.As(err, &f) || f.Reason != reason || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, reason, text)
	}
}

func TestFailure_FinalRefusals(t *testing.T) {
	t.Parallel()
	refusal := func(code tunnel.Code) error { return &tunnel.Error{Code: code, Msg: "the server's words"} }
	for name, c := range map[string]struct {
		hello, bind error
		reason      agent.Reason
		text        string
	}{
		"unknown authtoken": {refusal(tunnel.CodeBadToken), nil, agent.ReasonCredentials,
			"the server refused the authtoken: the server's words"},
		"revoked authtoken": {refusal(tunnel.CodeTokenRevoked), nil, agent.ReasonCredentials,
			"the authtoken was revoked: the server's words"},
		"authtoken without a rule": {refusal(tunnel.CodeForbidden), nil, agent.ReasonCredentials,
			"the authtoken may not serve http://hello.demo: the server's words"},
		"other version": {refusal(tunnel.CodeVersion), nil, agent.ReasonStopped, "cannot work with https://127.0.0.1"},
		"stopped": {refusal(tunnel.CodeStop), nil, agent.ReasonStopped,
			"the server ended the session for good: the server's words"},
		"authtoken may not bind this": {nil, refusal(tunnel.CodeForbidden), agent.ReasonCredentials,
			"the authtoken may not serve http://hello.demo"},
		"invalid endpoint": {nil, refusal(tunnel.CodeInvalid), agent.ReasonRefused,
			"the server refused http://hello.demo: the server's words"},
		"account limit": {nil, refusal(tunnel.CodeLimit), agent.ReasonRefused,
			"the server refused http://hello.demo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := newService(t)
			svc.hello = func(tunnel.Hello) error { return c.hello }
			svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
				return tunnel.Bound{}, c.bind
			}
			svc.start()
			wantFailure(t, run(t, svc, "8080", nil).end(), c.reason, c.text)
		})
	}
}

func TestFailure_SessionStopped(t *testing.T) {
	t.Parallel()
	for code, want := range map[tunnel.Code]agent.Reason{tunnel.CodeTokenRevoked: agent.ReasonCredentials,
		tunnel.CodeStop: agent.ReasonStopped} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			svc := newService(t).start()
			r := run(t, svc, "8080", nil)
			s := receive(t, svc.bound, "session")
			next[agent.Online](r)
			s.Stop(code, "by an administrator")
			wantFailure(t, r.end(), want, "by an administrator")
		})
	}
}

// TestSession_TriesTokenThatReplacedRevokedOne holds that an agent whose authtoken is deleted after its
// file got another one goes on with that, and ends when that one is deleted, too.
func TestSession_TriesTokenThatReplacedRevokedOne(t *testing.T) {
	t.Parallel()
	var token atomic.Pointer[string]
	write := func(s string) { token.Store(&s) }
	write("flt_first")
	svc := newService(t)
	var presented atomic.Pointer[string]
	svc.hello = func(h tunnel.Hello) error { presented.Store(&h.Token); return nil }
	svc.start()
	r := run(t, svc, "8080", func(o *agent.Options) { o.Token = func() string { return *token.Load() } })
	s := receive(t, svc.bound, "session")
	next[agent.Online](r)
	write("flt_second")
	s.Stop(tunnel.CodeTokenRevoked, "deleted")
	s = receive(t, svc.bound, "session with the second token")
	if got := *presented.Load(); got != "flt_second" {
		t.Errorf("presented %q", got)
	}
	next[agent.Online](r)
	s.Stop(tunnel.CodeTokenRevoked, "deleted, too")
	wantFailure(t, r.end(), agent.ReasonCredentials, "deleted, too")
}

func TestBind_RetriesTemporaryErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []tunnel.Code{tunnel.CodeUnavailable, tunnel.CodeInternal, tunnel.CodeRateLimited,
		tunnel.CodeDraining} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			svc := newService(t)
			var binds atomic.Int64
			svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
				if binds.Add(1) < 3 {
					return tunnel.Bound{}, &tunnel.Error{Code: code, Msg: "not now"}
				}
				return svc.grant(), nil
			}
			svc.start()
			r := run(t, svc, "8080", nil)
			if online := next[agent.Online](r); online.Reconnected {
				t.Errorf("%+v", online)
			}
		})
	}
}

func TestFailure_UntrustedServerAtStartOnly(t *testing.T) {
	t.Parallel()
	t.Run("at start", func(t *testing.T) {
		t.Parallel()
		svc, other := newService(t).start(), trust.Options{CASHA256: strings.Repeat("ab", 32)}
		config, err := other.ClientConfig()
		must.Succeed(t, err)
		err = run(t, svc, "8080", func(o *agent.Options) { o.TLS = config }).end()
		wantFailure(t, err, agent.ReasonIdentity,
			"cannot be trusted: its certificate authority is not the one whose fingerprint was given")
	})
	t.Run("at start, retried", func(t *testing.T) {
		t.Parallel()
		svc, other := newService(t).start(), trust.Options{CASHA256: strings.Repeat("ab", 32)}
		config, err := other.ClientConfig()
		must.Succeed(t, err)
		r := run(t, svc, "8080", func(o *agent.Options) {
			o.TLS, o.RetryUntrusted = config, []trust.Problem{trust.WrongPin}
		})
		if e := next[agent.Retrying](r); e.Untrusted != trust.WrongPin || e.WasOnline {
			t.Errorf("got %+v", e)
		}
	})
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		svc := newService(t).start()
		var wrong atomic.Bool
		r := run(t, svc, "8080", func(o *agent.Options) {
			o.TLS.ClientSessionCache = nil // a resumed session would be trusted rightly
			o.DialServer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if wrong.Load() {
					return nil, fmt.Errorf("negotiating TLS: %w", trust.ErrPin)
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
		})
		receive(t, svc.bound, "session")
		next[agent.Online](r)
		wrong.Store(true)
		svc.cut()
		for !strings.Contains(next[agent.Retrying](r).Cause, "its certificate authority is not the one") {
			continue
		}
		wrong.Store(false)
		next[agent.Online](r)
	})
}

func TestReconnect_ReportsEachCauseOnce(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	var attempts atomic.Int64
	closed := closedport.Reserve(t)
	r := run(t, svc, "8080", func(o *agent.Options) {
		o.DialServer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch n := attempts.Add(1); {
			case n <= 3:
				return nil, &net.DNSError{Name: "fairlead.example", Err: "no such host", IsNotFound: true}
			case n <= 6:
				return (&net.Dialer{}).DialContext(ctx, network, closed)
			case n <= 8:
				return nil, context.DeadlineExceeded
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	for _, want := range []string{"the name fairlead.example does not exist", "(connection refused)",
		"no answer in time"} {
		if got := next[agent.Retrying](r); !strings.Contains(got.Cause, want) || got.WasOnline {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
	select {
	case e := <-r.events:
		if _, ok := e.(agent.Connected); !ok {
			t.Errorf("after the three causes came %+v", e)
		}
	case <-time.After(patience):
		t.Error("never connected")
	}
	next[agent.Online](r)
}

func TestReconnect_SpreadsAgents(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	const agents, ceiling = 20, time.Minute
	var all []*running
	for range agents {
		r := run(t, svc, "8080", func(o *agent.Options) { o.MaxBackoff = ceiling })
		receive(t, svc.bound, "session")
		next[agent.Online](r)
		all = append(all, r)
	}
	_ = svc.ln.Close()
	svc.cut()
	waits := map[time.Duration]bool{}
	for _, r := range all {
		e := next[agent.Retrying](r)
		waits[e.RetryIn] = true
		if e.RetryIn > 200*time.Millisecond {
			t.Errorf("the first wait is %v", e.RetryIn)
		}
	}
	if len(waits) < agents/2 {
		t.Errorf("%d agents share %d waits", agents, len(waits))
	}
}

func TestReconnect_LeavesDrainingServer(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", nil)
	s := receive(t, svc.bound, "session")
	next[agent.Online](r)
	must.Succeed(t, s.Drain(time.Minute))
	next[agent.Draining](r)
	if online := next[agent.Online](r); !online.Reconnected || online.SessionID != "ts-2" {
		t.Errorf("%+v", online)
	}
}
