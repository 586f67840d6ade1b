// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// PublicServer is a service with a public edge, whose account is granted *.example.com.
type PublicServer struct {
	*Server
	Roots   *x509.CertPool
	Account string
}

// StartPublic runs a service with a public edge, with the options changed by change.
func StartPublic(t testing.TB, change ...func(*service.Options)) *PublicServer {
	t.Helper()
	dir := t.TempDir()
	w := &PublicServer{Roots: IssueCertificate(t, dir, "*.example.com")}
	w.Server = Start(t, append([]func(*service.Options){func(o *service.Options) {
		o.Public = service.PublicOptions{HTTPAddr: "127.0.0.1:0", HTTPSAddr: "127.0.0.1:0",
			TLSCerts: []string{filepath.Join(dir, "tls.crt")}, TLSKeys: []string{filepath.Join(dir, "tls.key")}}
		o.BaseURL = "https://api.example.com:8443"
	}}, change...)...)
	st := w.OpenStore()
	accounts, err := st.ListAccounts(Context(t))
	must.Succeed(t, err)
	w.Account = accounts[0].ID
	if _, err := st.GrantDomain(Context(t), w.Account, "*.example.com"); err != nil {
		t.Fatal(err)
	}
	return w
}

// IssueCertificate writes tls.crt and tls.key for the names into dir and returns whom to trust.
func IssueCertificate(t testing.TB, dir string, names ...string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: secret}} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// NewBrowser returns an HTTP client that resolves every host to the public edge. Ports that end in
// 443 lead to the listener with TLS, all others to the one without.
func (w *PublicServer) NewBrowser() *http.Client {
	tr := &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: w.Roots},
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			to := w.Addrs.HTTP
			if strings.HasSuffix(addr, "443") {
				to = w.Addrs.HTTPS
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		}}
	w.T.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: MaxWait, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// GetPage requests a URL with a new browser and returns status and body.
func (w *PublicServer) GetPage(url string) (status int, body string) {
	w.T.Helper()
	req, err := http.NewRequestWithContext(Context(w.T), http.MethodGet, url, nil)
	must.Succeed(w.T, err)
	browser := w.NewBrowser()
	defer browser.CloseIdleConnections() // a client may have a thousand connections
	res, err := browser.Do(req)
	must.Succeed(w.T, err)
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, ReadAll(w.T, res.Body)
}

// Bind runs an agent that serves the URL with the handler.
func (w *PublicServer) Bind(binding, url string, h http.HandlerFunc) tunnel.Bound {
	w.T.Helper()
	a := w.StartAgent(tunnel.Bind{URL: url, Binding: binding, UpstreamURL: "http://localhost:1",
		UpstreamProtocol: "http1"},
		ServeHTTP(w.T, h))
	return Receive(w.T, a.Bound, "bind")
}
