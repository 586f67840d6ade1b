// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
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

func TestServe_RefusesStreamsWhileUpstreamIsDown(t *testing.T) {
	t.Parallel()
	addr := closedport.Reserve(t)
	var listening atomic.Pointer[string] // where the upstream listens, once it does
	svc := newService(t).start()
	r := run(t, svc, addr, func(o *agent.Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if up := listening.Load(); up != nil {
				address = *up
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	s := receive(t, svc.bound, "bind")
	if down := next[agent.UpstreamDown](r); down.Upstream != "http://"+addr || down.Cause != "connection refused" ||
		!down.HTTP {
		t.Errorf("warning at start: %+v", down)
	}
	for range 3 {
		wantRefused(t, s, header(), tunnel.RefusedUpstream)
	}
	if again := remaining[agent.UpstreamDown](r); len(again) > 0 {
		t.Errorf("the same outage was reported again: %+v", again)
	}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "back")
	}))
	defer back.Close()
	at := back.Listener.Addr().String()
	listening.Store(&at)
	if got, err := get(t, s, "/"); err != nil || got != "back" {
		t.Errorf("got %q, %v", got, err)
	}
	if up := next[agent.UpstreamUp](r); up.Upstream != "http://"+addr {
		t.Errorf("got %+v", up)
	}
}

func TestServe_ReportsRecoveryWithoutCallers(t *testing.T) {
	t.Parallel()
	addr := closedport.Reserve(t)
	var listening atomic.Bool
	svc := newService(t).start()
	r := run(t, svc, addr, func(o *agent.Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if listening.Load() {
				address = svc.addr
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	next[agent.UpstreamDown](r)
	listening.Store(true)
	if up := next[agent.UpstreamUp](r); up.Upstream != "http://"+addr {
		t.Errorf("got %+v", up)
	}
}

func TestServe_NeverProbesTCPUpstream(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	dialled := make(chan string, 10)
	r := run(t, svc, "5432", func(o *agent.Options) {
		asTCP(o)
		o.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
			dialled <- addr
			return nil, errors.New("down")
		}
	})
	next[agent.Online](r)
	r.stop()
	if err := r.end(); err != nil || len(dialled) != 0 {
		t.Errorf("%v; dialled %d times", err, len(dialled))
	}
}

func TestServe_DialHonoursStreamDeadline(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	limits := make(chan time.Duration, 2)
	run(t, svc, "5432", func(o *agent.Options) {
		asTCP(o)
		o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			deadline, _ := ctx.Deadline()
			limits <- time.Until(deadline)
			return nil, context.DeadlineExceeded
		}
	})
	s := receive(t, svc.bound, "bind")
	h := header()
	wantRefused(t, s, h, tunnel.RefusedUpstream)
	if got := <-limits; got > 10*time.Second || got < 5*time.Second {
		t.Errorf("without a deadline the dial may take %v, want 10s", got)
	}
	h.Deadline = 5 * time.Second
	wantRefused(t, s, h, tunnel.RefusedUpstream)
	if got := <-limits; got >= 5*time.Second {
		t.Errorf("with a deadline of 5s the dial may take %v", got)
	}
}

func TestServe_RefusedStreamsLeakNoDescriptors(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts descriptors in /proc")
	}
	svc := newService(t).start()
	run(t, svc, closedport.Reserve(t), asTCP)
	s := receive(t, svc.bound, "bind")
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must.Succeed(t, err)
		return len(entries)
	}
	wantRefused(t, s, header(), tunnel.RefusedUpstream)
	before := count()
	for range 1000 {
		wantRefused(t, s, header(), tunnel.RefusedUpstream)
	}
	if after := count(); after > before+5 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// tlsCase is an https upstream, and what an agent with that trust makes of it.
type tlsCase struct {
	target   string
	trust    func(u *agent.Upstream)
	protocol string
	preface  string // what the test sends
	want     string // what an answer holds; "" = refused
	cause    string
}

// tlsCases returns upstreams like the given one.
func tlsCases(t *testing.T, upstream *httptest.Server) map[string]tlsCase {
	t.Helper()
	plain := withoutALPN(t, upstream.TLS.Certificates)
	nameless, pin := namelessCertificate(t), trust.Fingerprint(upstream.Certificate())
	by := func(o trust.Options, name string) func(*agent.Upstream) {
		return func(u *agent.Upstream) { must.Succeed(t, u.SetTrust(o, name)) }
	}
	byRoots := by(trust.Options{CAPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: upstream.Certificate().Raw})}, "")
	const hello = "GET / HTTP/1.1\r\nHost: hello.demo\r\nConnection: close\r\n\r\n"
	return map[string]tlsCase{
		"http1": {upstream.URL, byRoots, agent.ProtocolHTTP1,
			hello, "hello.demo", ""},
		"http2": {upstream.URL, byRoots, agent.ProtocolHTTP2,
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01", ""},
		"pin, named address": {upstream.URL, by(trust.Options{CASHA256: pin}, "127.0.0.1"), agent.ProtocolHTTP1, hello,
			"hello.demo", ""},
		"pin and server name": {upstream.URL, by(trust.Options{CASHA256: pin}, "example.com"), agent.ProtocolHTTP1,
			hello, "hello.demo", ""},
		"unknown authority": {upstream.URL, by(trust.Options{}, ""), agent.ProtocolHTTP1, "", "",
			"signed by an authority that this machine does not trust; give its authority with --upstream-ca-file, " +
				"or, if it is the upstream's, the fingerprint that it shows: --upstream-ca-sha256 " + pin},
		"other fingerprint": {upstream.URL, by(trust.Options{CASHA256: strings.Repeat("ab", 32)}, ""),
			agent.ProtocolHTTP1, "", "",
			"it shows " + pin + ": if that is the upstream's, give it with --upstream-ca-sha256"},
		"other name": {upstream.URL, by(trust.Options{CASHA256: pin}, "api.corp"), agent.ProtocolHTTP1, "", "",
			`for another host name; it names ["example.com" "*.example.com"]: give the upstream's with ` +
				"--upstream-server-name"},
		"no name": {"https://" + withoutALPN(t, []tls.Certificate{nameless}).Addr().String(), by(trust.Options{}, ""),
			agent.ProtocolHTTP1, "", "",
			"names no host; if it is the upstream's, give its fingerprint: --upstream-ca-sha256 " +
				trust.Fingerprint(nameless.Leaf)},
		"http2 not offered": {"https://" + plain.Addr().String(), byRoots, agent.ProtocolHTTP2, "", "",
			"does not speak HTTP/2"},
	}
}

func TestDial_VerifiesHTTPSUpstream(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host)
	}))
	upstream.EnableHTTP2 = true
	upstream.Config.ErrorLog = log.New(io.Discard, "", 0)
	upstream.StartTLS()
	defer upstream.Close()
	for name, c := range tlsCases(t, upstream) {
		t.Run(name, func(t *testing.T) {
			svc := newService(t).start()
			r := run(t, svc, c.target, func(o *agent.Options) {
				o.Endpoints[0].Upstream.Protocol = c.protocol
				c.trust(&o.Endpoints[0].Upstream)
			})
			s := receive(t, svc.bound, "bind")
			if c.want == "" {
				wantRefused(t, s, header(), tunnel.RefusedUpstream)
				if down := next[agent.UpstreamDown](r); !strings.Contains(down.Cause, c.cause) {
					t.Errorf("got %+v", down)
				}
				return
			}
			wantAnswer(t, s, c.preface, c.want)
		})
	}
}

// wantAnswer sends something over a new stream, and reads until the answer holds want.
func wantAnswer(t *testing.T, s *tunnel.Session, send, want string) {
	t.Helper()
	st := open(t, s, header())
	defer func() { _ = st.Close() }()
	if _, err := io.WriteString(st, send); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), want) {
		n, err := st.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("read %q, %v", got.String(), err)
		}
	}
}

// namelessCertificate returns a self-signed certificate without names, as appliances make them.
func namelessCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), Subject: pkix.Name{CommonName: "printer"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// withoutALPN shakes hands and offers no protocol.
func withoutALPN(t *testing.T, certificates []tls.Certificate) net.Listener {
	t.Helper()
	plain := tls.NewListener(mustListen(t), &tls.Config{Certificates: certificates})
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = plain.Close() })
	return plain
}

func mustListen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return ln
}
