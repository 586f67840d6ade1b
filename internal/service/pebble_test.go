// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// pebble is Let's Encrypt's ACME server for tests, of test/pebble.
type pebble struct {
	t                   *testing.T
	program, dir        string
	address, management string           // address and management are ports of localhost.
	dns                 string           // dns is a resolver's address.
	asked, log          logbuffer.Buffer // asked has the names that were resolved, log what pebble printed.
}

// newPebble returns a directory that start starts.
func newPebble(t *testing.T) *pebble {
	t.Helper()
	p := &pebble{t: t, program: os.Getenv("FAIRLEAD_PEBBLE"), dir: t.TempDir()}
	if p.program == "" {
		t.Skip("make pebble builds an ACME server, and FAIRLEAD_PEBBLE names it")
	}
	servicetest.IssueCertificate(t, p.dir, "localhost")
	for _, addr := range []*string{&p.address, &p.management} {
		found, err := freeaddr.Find()
		must.Succeed(t, err)
		*addr = strings.Replace(found, "127.0.0.1", "localhost", 1)
	}
	p.dns = servicetest.ServeTCP(t, p.resolve)
	return p
}

// resolve answers that every name is on this machine.
func (p *pebble) resolve(c *net.TCPConn) {
	size, buf := make([]byte, 2), make([]byte, 1<<16)
	for {
		if _, err := io.ReadFull(c, size); err != nil {
			return
		}
		query := buf[:binary.BigEndian.Uint16(size)]
		var m dnsmessage.Message
		if _, err := io.ReadFull(c, query); err != nil || m.Unpack(query) != nil {
			return
		}
		q := m.Questions[0]
		_, _ = p.asked.Write([]byte(q.Name.String() + "\n"))
		m.Response, m.Additionals = true, nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}}}
		}
		answer, err := m.AppendPack(make([]byte, 2))
		if err != nil {
			return
		}
		binary.BigEndian.PutUint16(answer, uint16(len(answer)-2))
		_, _ = c.Write(answer)
	}
}

// start runs pebble, which asks the listeners of the service for answers to its challenges, and issues
// certificates for so many seconds. It returns whom these are to be trusted from.
func (p *pebble) start(a service.Addresses, seconds int) (roots *x509.CertPool, stop func()) {
	p.t.Helper()
	port := func(a net.Addr) int {
		if a == nil {
			return 1
		}
		return a.(*net.TCPAddr).Port
	}
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{"listenAddress": p.address,
		"managementListenAddress": p.management, "certificate": filepath.Join(p.dir, "tls.crt"),
		"privateKey": filepath.Join(p.dir, "tls.key"), "httpPort": port(a.HTTP), "tlsPort": port(a.HTTPS),
		"keyAlgorithm": "ecdsa",
		"profiles":     map[string]any{"default": map[string]any{"description": "d", "validityPeriod": seconds}}}})
	must.Succeed(p.t, err)
	file := filepath.Join(p.dir, "config.json")
	must.Succeed(p.t, os.WriteFile(file, config, 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, p.program, "-config", file, "-dnsserver", p.dns)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	must.Succeed(p.t, cmd.Start())
	stop = func() { cancel(); _ = cmd.Wait() }
	p.t.Cleanup(func() {
		stop()
		if p.t.Failed() {
			p.t.Logf("pebble's log:\n%s", &p.log)
		}
	})
	roots = x509.NewCertPool()
	servicetest.Eventually(p.t, "pebble answers", func() bool { return roots.AppendCertsFromPEM(p.root()) })
	return roots, stop
}

// root returns the authority of issued certificates, nil while pebble does not answer.
func (p *pebble) root() []byte {
	pool := x509.NewCertPool()
	own, err := os.ReadFile(filepath.Join(p.dir, "tls.crt"))
	must.Succeed(p.t, err)
	pool.AppendCertsFromPEM(own)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "https://"+p.management+"/roots/0", nil)
	must.Succeed(p.t, err)
	res, err := tr.RoundTrip(req)
	if err != nil {
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	return text
}

// issued returns how many certificates pebble issued.
func (p *pebble) issued() int { return strings.Count(p.log.String(), "Issued certificate") }

// options makes the service order from pebble.
func (p *pebble) options(o *service.Options) {
	o.Public = service.PublicOptions{HTTPAddr: "127.0.0.1:0", HTTPSAddr: "127.0.0.1:0",
		ACME: service.ACMEOptions{Directory: "https://" + p.address + "/dir", AgreeTOS: true,
			Email: "ops@example.com", CAFile: filepath.Join(p.dir, "tls.crt")}}
	o.BaseURL = "https://api.example.com:8443"
}
