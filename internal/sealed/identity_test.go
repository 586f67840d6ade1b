// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestIncoming_HasHeaderAndRefuses(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	h := sealed.Header{URL: endpoint, ClientAddr: "10.0.0.1:4711", TraceID: "tr_1", Deadline: 1500 * time.Millisecond,
		Pod: &tunnel.PodIdentity{Namespace: "shop", Name: "web-1", ServiceAccount: "web"}}
	forwarder, agent := w.open(t, honest)
	refused := make(chan error, 1)
	go func() {
		in, err := as.Accept(timeoutContext(t), agent)
		if err == nil {
			if got := in.Header; got.URL != h.URL || got.ClientAddr != h.ClientAddr || got.TraceID != h.TraceID ||
				got.Deadline != h.Deadline || got.Pod.Namespace != "shop" || got.Pod.Name != "web-1" ||
				got.Pod.ServiceAccount != "web" || in.Caller != "" {
				t.Errorf("got %+v", got)
			}
			err = in.Refuse("UPSTREAM", "it is\x1b down: "+strings.Repeat("é", 600))
		}
		refused <- err
	}()
	_, err := owner.trust(t).Connect(timeoutContext(t), forwarder, h)
	var answer *sealed.RefusedError
	if !errors.As(err, &answer) || answer.Code != "UPSTREAM" || !strings.HasPrefix(answer.Text, "it is  down: éé") ||
		len(answer.Text) > 512 {
		t.Errorf("refused with %v", err)
	}
	must.Succeed(t, wait.Receive(t, "Refuse", refused))
}

// rawCaller returns a TLS connection with the agent as a caller that checks and respects nothing:
// with another protocol, with none or plain.
func rawCaller(t testing.TB, below sealed.Below, protocol string) net.Conn {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	switch protocol {
	case "plain":
		return below
	case "none":
	default:
		cfg.NextProtos = []string{protocol}
	}
	c := tls.Client(below, cfg)
	_ = c.HandshakeContext(timeoutContext(t)) // the agent may refuse the protocol
	return c
}

func frame(text string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(text)))) + text
}

func TestIdentity_RefusesHeaders(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	for name, c := range map[string]struct{ sent, code, protocol string }{
		"another name":      {frame(`{"url":"tcp://web.demo:5432"}`), sealed.CodeWrongURL, ""},
		"another port":      {frame(`{"url":"tcp://db.demo:5433"}`), sealed.CodeWrongURL, ""},
		"another scheme":    {frame(`{"url":"http://db.demo:5432"}`), sealed.CodeWrongURL, ""},
		"the wildcard":      {frame(`{"url":"tcp://*.demo:5432"}`), sealed.CodeHeader, ""},
		"no URL":            {frame(`{}`), sealed.CodeHeader, ""},
		"control character": {frame(`{"url":"tcp://db.demo:5432","pod":{"name":"a\nb"}}`), sealed.CodeHeader, ""},
		"a list of addresses": {frame(`{"url":"tcp://db.demo:5432","client_addr":"1.1.1.1, 2.2.2.2:80"}`),
			sealed.CodeHeader, ""},
		"a list as a zone": {frame(`{"url":"tcp://db.demo:5432","client_addr":"[fe80::1%a, 2.2.2.2]:80"}`),
			sealed.CodeHeader, ""},
		"no JSON":          {frame(`url`), "", ""},
		"oversized":        {frame(`{"url":"tcp://db.demo:5432"}` + strings.Repeat(" ", 16<<10)), "", ""},
		"another protocol": {frame(`{"url":"tcp://db.demo:5432"}`), "", "h2"},
		"no TLS":           {"GET / HTTP/1.1\r\nHost: db.demo\r\n\r\n", "", "plain"},
		"no protocol":      {frame(`{"url":"tcp://db.demo:5432"}`), "", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forwarder, agent := w.open(t, honest)
			accepted := make(chan error, 1)
			go func() {
				_, err := as.Accept(timeoutContext(t), agent)
				accepted <- err
			}()
			must.Succeed(t, forwarder.SetReadDeadline(time.Now().Add(20*time.Second)))
			caller := rawCaller(t, forwarder, cmp.Or(c.protocol, "fairlead-seal/1"))
			_, _ = io.WriteString(caller, c.sent)
			answer, err := io.ReadAll(caller)
			if c.code != "" && !strings.Contains(string(answer), `"refused":"`+c.code+`"`) ||
				c.code == "" && (err == nil || strings.Contains(string(answer), "opened")) {
				t.Errorf("answered %q, %v", answer, err)
			}
			_ = forwarder.Abort()
			if err := wait.Receive(t, "Accept", accepted); err == nil {
				t.Error("the agent accepted the header")
			}
		})
	}
}

func TestIdentity_KnowsProvenCallers(t *testing.T) {
	t.Parallel()
	w, owner, other := newWorld(t), newAuthority(t), newAuthority(t)
	server := static(owner.sign(t, nil))
	client := func(change func(*x509.Certificate)) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			asCaller("cluster-1")(c)
			change(c)
		}
	}
	named := func(uri string) func(*x509.Certificate) {
		return client(func(c *x509.Certificate) {
			u, err := url.Parse(uri)
			must.Succeed(t, err)
			c.URIs = []*url.URL{u}
		})
	}
	proof := func(by *authority, change func(*x509.Certificate)) sealed.CertificateSource {
		return static(by.sign(t, change))
	}
	for name, c := range map[string]struct {
		proof  sealed.CertificateSource
		caller string // "" = not proven
	}{
		"proven":          {proof(owner, asCaller("cluster-1")), "cluster-1"},
		"no proof":        {nil, ""},
		"unreadable":      {func() (*tls.Certificate, error) { return nil, errors.New("no such file") }, ""},
		"other authority": {proof(other, asCaller("cluster-1")), ""},
		"expired":         {proof(owner, client(dates(-2*time.Hour, -time.Hour))), ""},
		"an agent's":      {server, ""},
		"for any usage":   {proof(owner, client(func(c *x509.Certificate) { c.ExtKeyUsage = nil })), ""},
		"no name":         {proof(owner, client(func(c *x509.Certificate) { c.URIs = nil })), ""},
		"another account": {proof(owner, named("fairlead://ac-2/caller/cluster-1")), ""},
		"another name":    {proof(owner, named("fairlead://ac-1/caller/a/caller/b")), ""},
		"another scheme":  {proof(owner, named("spiffe://ac-1/caller/cluster-1")), ""},
		"an endpoint's":   {proof(owner, named("fairlead://ac-1/tcp/db.demo:5432")), ""},
		"authority's":     {static(tls.Certificate{Certificate: [][]byte{owner.cert.Raw}, PrivateKey: owner.key}), ""},
	} {
		for _, required := range []bool{false, true} {
			as, err := sealed.NewIdentity(sealed.IdentityOptions{Account: ownAccount, Certificate: server,
				Callers: poolFunc(owner.pool), RequireCaller: required})
			must.Succeed(t, err)
			to := newTrust(t, sealed.TrustOptions{Authorities: []*x509.Certificate{owner.cert}, Proof: c.proof})
			for range 2 { // the second is resumed
				e := w.connect(t, to, as, honest)
				var refused *sealed.RefusedError
				switch {
				case required && c.caller == "":
					if !errors.As(e.forwarderErr, &refused) || refused.Code != sealed.CodeCallerNotProven ||
						e.agentErr == nil {
						t.Errorf("%s, required: %v, %v", name, e.forwarderErr, e.agentErr)
					}
				case e.forwarderErr != nil || e.agentErr != nil || e.incoming.Caller != c.caller:
					t.Errorf("%s: %v, %v, %+v", name, e.forwarderErr, e.agentErr, e.incoming)
				}
			}
		}
	}
}

// The service replays what a proven caller has sent, at its agent and at another one of the endpoint.
func TestIdentity_ReplayedProofProvesNothing(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	var agents [2]*sealed.Identity
	for i := range agents {
		var err error
		agents[i], err = sealed.NewIdentity(sealed.IdentityOptions{Account: ownAccount,
			Certificate: static(owner.sign(t, nil)), Callers: poolFunc(owner.pool), RequireCaller: true})
		must.Succeed(t, err)
	}
	to := newTrust(t, sealed.TrustOptions{Authorities: []*x509.Certificate{owner.cert},
		Proof: static(owner.sign(t, asCaller("cluster-1")))})
	for _, resumed := range []bool{false, true} {
		recorded := make(chan []byte, 1)
		e := w.mustConnect(t, to, agents[0], relayWith(toAgent, func(to, from *tunnel.Stream) error {
			var sent bytes.Buffer
			_, err := io.Copy(io.MultiWriter(struct{ io.Writer }{to}, &sent), struct{ io.Reader }{from})
			recorded <- sent.Bytes()
			return errors.Join(err, to.CloseWrite())
		}))
		if e.incoming.Caller != "cluster-1" || e.forwarder.Resumed() != resumed {
			t.Errorf("caller %q, resumed %t", e.incoming.Caller, e.forwarder.Resumed())
		}
		must.Succeed(t, e.forwarder.CloseWrite())
		sent := wait.Receive(t, "what the caller sent", recorded)
		for i, as := range agents {
			_, agent := w.open(t, func(_, agent *tunnel.Stream) {
				_, _ = agent.Write(sent)
				_, _ = io.Copy(io.Discard, struct{ io.Reader }{agent})
			})
			if in, err := as.Accept(timeoutContext(t), agent); err == nil {
				t.Errorf("agent %d took a replay for %q", i, in.Caller)
			}
		}
	}
}

// poolFunc is sealed.Callers.
type poolFunc func() *x509.CertPool

func (f poolFunc) Pool() *x509.CertPool { return f() }

func (poolFunc) VerifyToken(string) (string, error) { return "", errors.New("no token is known") }

// asCaller makes a certificate one of a caller.
func asCaller(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.URIs, c.ExtKeyUsage = []*url.URL{sealed.CallerName(ownAccount, name)},
			[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
}

// A caller whose authority was removed must not go on by resuming a session that began before.
func TestIdentity_RemovedAuthorityEndsTickets(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	var roots atomic.Pointer[x509.CertPool]
	roots.Store(owner.pool())
	as, err := sealed.NewIdentity(sealed.IdentityOptions{Account: ownAccount, Certificate: static(owner.sign(t, nil)),
		Callers: poolFunc(roots.Load), RequireCaller: true})
	must.Succeed(t, err)
	to := newTrust(t, sealed.TrustOptions{Authorities: []*x509.Certificate{owner.cert},
		Proof: static(owner.sign(t, asCaller("cluster-1")))})
	for _, resumed := range []bool{false, true} {
		if e := w.mustConnect(t, to, as, honest); e.forwarder.Resumed() != resumed || e.incoming.Caller != "cluster-1" {
			t.Errorf("caller %q, resumed %t", e.incoming.Caller, e.forwarder.Resumed())
		}
	}
	roots.Store(newAuthority(t).pool())
	var refused *sealed.RefusedError
	if e := w.connect(t, to, as, honest); !errors.As(e.forwarderErr, &refused) ||
		refused.Code != sealed.CodeCallerNotProven || !strings.Contains(refused.Text, "unknown authority") {
		t.Errorf("after its authority was removed: %v", e.forwarderErr)
	}
}

// A caller that gets a certificate must not go on resuming sessions without one.
func TestTrust_RenewedProofEndsTickets(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, err := sealed.NewIdentity(sealed.IdentityOptions{Account: ownAccount, Certificate: static(owner.sign(t, nil)),
		Callers: poolFunc(owner.pool)})
	must.Succeed(t, err)
	var current tls.Certificate
	to := newTrust(t, sealed.TrustOptions{Authorities: []*x509.Certificate{owner.cert},
		Proof: func() (*tls.Certificate, error) {
			if current.Certificate == nil {
				return nil, nil //nolint:nilnil // there is no certificate yet
			}
			read := current
			return &read, nil
		}})
	for i, name := range []string{"", "", "cluster-1", "cluster-1", "cluster-2"} {
		if i > 0 && name != "" && i != 3 {
			current = owner.sign(t, asCaller(name))
		}
		e := w.mustConnect(t, to, as, honest)
		if resumed := i == 1 || i == 3; e.incoming.Caller != name || e.forwarder.Resumed() != resumed {
			t.Errorf("connection %d: caller %q, resumed %t", i, e.incoming.Caller, e.forwarder.Resumed())
		}
	}
}
