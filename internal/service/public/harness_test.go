// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) {
	// net/http gives a client that it has refused half a second to read why, even after the server
	// is closed: longer than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// maxWait limits every wait of a test.
const maxWait = 30 * time.Second

// testServer is a public Server with endpoints, on loopback.
type testServer struct {
	t           *testing.T
	edge        *Server
	http, https string
	roots       *x509.CertPool
	log         *logbuffer.Buffer
}

// echo answers with the request that the Server passed on.
func echo(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c Client) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprintf(w, "%s %s %s|%s|%t|%s|%s|%s", ep.URL, r.Method, r.URL.Path, c.Addr.Addr(), c.TLS,
		r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"), body)
}

func newTestServer(t *testing.T, change ...func(*Options)) *testServer {
	t.Helper()
	w := &testServer{t: t, roots: x509.NewCertPool(), log: &logbuffer.Buffer{}}
	dir := t.TempDir()
	w.issue(dir, "apps", time.Hour, "*.example.com", "example.com", "localhost")
	w.issue(dir, "other", time.Hour, "app.other.test")
	certs, err := OpenCertificates([]CertFiles{{Cert: dir}}, w.logger())
	must.Succeed(t, err)
	o := Options{HTTP: listenLoopback(t), HTTPS: listenLoopback(t), Certificates: certs, Logger: w.logger(),
		Endpoints: testEndpoints{}, Handler: serveFunc(echo)}
	for _, f := range change {
		f(&o)
	}
	w.http, w.https = o.HTTP.Addr().String(), o.HTTPS.Addr().String()
	w.edge = New(o)
	w.edge.Start(context.Background())
	t.Cleanup(w.edge.Close)
	return w
}

func (w *testServer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w.log, nil)) }

// serveFunc is a Handler.
type serveFunc func(http.ResponseWriter, *http.Request, *account.Endpoint, Client)

func (f serveFunc) ServeEndpoint(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c Client) {
	f(w, r, ep, c)
}

func (serveFunc) WriteError(w http.ResponseWriter, _ *http.Request, code account.Code, msg string) {
	http.Error(w, string(code)+" "+msg, code.Status())
}

// testEndpoints are the Endpoints of a test server; find and held replace those that it has.
type testEndpoints struct {
	find    func(ctx context.Context, host string, ports ...int) (*account.Endpoint, error)
	held    func(host string, port int) (*account.Endpoint, time.Time)
	granted func(host string) bool // nil = all are
}

func (e testEndpoints) FindEndpoint(ctx context.Context, host string, ports ...int) (*account.Endpoint, error) {
	if e.find != nil {
		return e.find(ctx, host, ports...)
	}
	return findEndpoint(ctx, host, ports...)
}

func (e testEndpoints) OnlinePublic(host string, port int) (*account.Endpoint, time.Time) {
	if e.held == nil {
		return nil, time.Time{}
	}
	return e.held(host, port)
}

func (e testEndpoints) GrantedHosts(_ context.Context, _ string, hosts []string) (map[string]bool, error) {
	granted := map[string]bool{}
	for _, h := range hosts {
		granted[h] = e.granted == nil || e.granted(h)
	}
	return granted, nil
}

// findEndpoint returns one of the endpoints of every test server.
func findEndpoint(_ context.Context, host string, ports ...int) (*account.Endpoint, error) {
	for _, port := range ports {
		for _, raw := range []string{"https://app.example.com", "https://two.example.com", "http://plain.example.com",
			"http://plain.example.com:8081", "http://app.example.com:8080", "https://app.other.test",
			"https://odd.example.com:4000"} {
			if u, err := account.ParseBindingURL(account.BindingPublic, raw); err == nil && u.Host == host &&
				u.Port == port {
				return &account.Endpoint{URL: raw, Scheme: u.Scheme, Host: host, Port: port}, nil
			}
		}
	}
	return nil, account.Errorf(account.CodeNotFound, "nothing at %s:%v", host, ports)
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return l
}

// issue writes NAME.crt and NAME.key of a certificate that the test server trusts.
func (w *testServer) issue(dir, name string, life time.Duration, hosts ...string) {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(w.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	must.Succeed(w.t, err)
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter:  time.Now().Add(life), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(w.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(w.t, err)
	write(w.t, filepath.Join(dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(w.t, filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	if cert, err := x509.ParseCertificate(der); err == nil {
		w.roots.AddCert(cert)
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, b, 0o600))
}

// dial opens a connection without TLS that gives up in time.
func (w *testServer) dial(addr string) net.Conn {
	w.t.Helper()
	c, err := (&net.Dialer{Timeout: maxWait}).DialContext(w.t.Context(), "tcp", addr)
	must.Succeed(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(maxWait))
	return c
}

// dialTLS opens a connection with TLS for the name.
func (w *testServer) dialTLS(name string, protocols ...string) *tls.Conn {
	w.t.Helper()
	return w.handshake(w.dial(w.https), name, protocols...)
}

// handshake begins TLS for the name.
func (w *testServer) handshake(below net.Conn, name string, protocols ...string) *tls.Conn {
	w.t.Helper()
	c := tls.Client(below, &tls.Config{ServerName: name, RootCAs: w.roots, NextProtos: protocols})
	must.Succeed(w.t, c.Handshake())
	return c
}

// client returns an HTTP client that resolves every host to the test server.
func (w *testServer) client() *http.Client {
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: w.roots},
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			to := w.http
			if strings.HasSuffix(addr, ":443") {
				to = w.https
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", to)
		}}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: maxWait, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// get requests the URL and returns the answer and its body.
func (w *testServer) get(url string, change ...func(*http.Request)) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", url, nil)
	must.Succeed(w.t, err)
	for _, f := range change {
		f(req)
	}
	res, err := w.client().Do(req)
	must.Succeed(w.t, err)
	return res, text(w.t, res)
}

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must.Succeed(t, err)
	return string(b)
}

func tcpAddr(a netip.AddrPort) *net.TCPAddr { return net.TCPAddrFromAddrPort(a) }
