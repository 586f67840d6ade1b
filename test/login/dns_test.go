// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer resolves hosts below localhost to loopback, which not every system's resolver does, and
// the names in forbidden.
type dnsServer struct {
	conn net.PacketConn
	done chan struct{}
}

// forbidden are names with addresses that an identity provider cannot have.
var forbidden = map[string]string{
	"metadata." + domain: "169.254.169.254",
	"private." + domain:  "10.0.0.1",
	"shared." + domain:   "100.64.0.1",
	"this." + domain:     "0.0.0.0",
}

func startDNS() (*dnsServer, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &dnsServer{conn: conn, done: make(chan struct{})}
	go n.serve()
	return n, nil
}

func (n *dnsServer) close() error {
	err := n.conn.Close()
	<-n.done
	return err
}

func (n *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *dnsServer) serve() {
	defer close(n.done)
	buf := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply, err := resolve(buf[:size]); err == nil {
			_, _ = n.conn.WriteTo(reply, from)
		}
	}
}

func resolve(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	host := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	addr := forbidden[host]
	if strings.HasSuffix(host, ".localhost") {
		addr = "127.0.0.1"
	}
	switch {
	case addr == "":
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{
			{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(addr).To4())}}}
	}
	return m.Pack()
}

// certificates are the public edge's.
type certificates struct {
	cert, key string // files
	pem       string
	pool      *x509.CertPool
	spki      string // the key's digest, for Chromium's flags
}

// issue writes a self-signed certificate for the hosts.
func issue(dir string, hosts ...string) (c certificates, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: hosts, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return c, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return c, err
	}
	digest := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	c = certificates{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), pool: x509.NewCertPool(),
		spki: base64.StdEncoding.EncodeToString(digest[:]),
		pem:  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	c.pool.AddCert(parsed)
	if err := os.WriteFile(c.cert, []byte(c.pem), 0o600); err != nil {
		return c, err
	}
	return c, os.WriteFile(c.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)
}
