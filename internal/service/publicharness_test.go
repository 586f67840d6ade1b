// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// public is a service with a public edge, whose account is granted *.example.com.
type publicServer struct {
	*testServer
	roots   *x509.CertPool
	account string
}

func startPublic(t *testing.T, change ...func(*Options)) *publicServer {
	t.Helper()
	dir := t.TempDir()
	w := &publicServer{roots: issueCertificate(t, dir, "*.example.com")}
	w.testServer = startServer(t, append([]func(*Options){func(o *Options) {
		o.Public = PublicOptions{HTTPAddr: "127.0.0.1:0", HTTPSAddr: "127.0.0.1:0",
			TLSCerts: []string{filepath.Join(dir, "tls.crt")}, TLSKeys: []string{filepath.Join(dir, "tls.key")}}
		o.BaseURL = "https://api.example.com:8443"
	}}, change...)...)
	st := w.openStore()
	accounts, err := st.ListAccounts(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	w.account = accounts[0].ID
	if _, err := st.GrantDomain(testContext(t), w.account, "*.example.com"); err != nil {
		t.Fatal(err)
	}
	return w
}

// issueCertificate writes tls.crt and tls.key for the names.
func issueCertificate(t *testing.T, dir string, names ...string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// newBrowser resolves every host to the public edge.
func (w *publicServer) newBrowser() *http.Client {
	tr := &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: w.roots},
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			to := w.addrs.HTTP
			if strings.HasSuffix(addr, ":443") {
				to = w.addrs.HTTPS
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		}}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// getPage asks for a URL.
func (w *publicServer) getPage(url string) (status int, body string) {
	w.t.Helper()
	res, err := w.newBrowser().Get(url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, readAll(w.t, res.Body)
}

// bind is an agent with the binding that serves the handler.
func (w *publicServer) bind(binding, url string, h http.HandlerFunc) tunnel.Bound {
	w.t.Helper()
	a := w.startAgent(tunnel.Bind{URL: url, Binding: binding, UpstreamURL: "http://localhost:1",
		UpstreamProtocol: "http1"},
		serve(w.t, h))
	return receive(w.t, a.bound, "bind")
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

func hello(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, r.Host+r.URL.Path+"|"+r.Header.Get("X-Forwarded-For")+"|"+r.Header.Get("X-Forwarded-Proto")+
		"|"+string(body))
}
