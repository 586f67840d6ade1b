// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// acmeServer is a service whose public certificates come from pebble.
type acmeServer struct{ *servicetest.PublicServer }

// startACME runs a service whose account is granted the domains.
func startACME(t *testing.T, change func(*service.Options), domains ...string) *acmeServer {
	t.Helper()
	s := &acmeServer{&servicetest.PublicServer{Server: servicetest.Start(t, change)}}
	st := s.OpenStore()
	accounts, err := st.ListAccounts(servicetest.Context(t))
	must.Succeed(t, err)
	s.Account = accounts[0].ID
	for _, d := range domains {
		_, err := st.GrantDomain(servicetest.Context(t), s.Account, d)
		must.Succeed(t, err)
	}
	return s
}

// bind serves the URL.
func (s *acmeServer) bind(url string) {
	s.T.Helper()
	s.Bind("public", url, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
}

// leaf returns the valid certificate that clients of the host get, nil without one.
func (s *acmeServer) leaf(host string) *x509.Certificate {
	d := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: s.Roots}}
	c, err := d.DialContext(servicetest.Context(s.T), "tcp", s.Addrs.HTTPS.String())
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// await waits until clients of the host get a valid certificate.
func (s *acmeServer) await(host string) (leaf *x509.Certificate) {
	s.T.Helper()
	servicetest.Eventually(s.T, "a certificate for "+host, func() bool { leaf = s.leaf(host); return leaf != nil })
	return leaf
}

// TestACME_AnswersChallenges orders a certificate by each kind of challenge, and never one for a name
// that no endpoint has, or that a file covers.
func TestACME_AnswersChallenges(t *testing.T) {
	t.Parallel()
	for name, only := range map[string]func(*service.Options, *service.Addresses){
		"http-01":     func(_ *service.Options, a *service.Addresses) { a.HTTPS = nil },
		"tls-alpn-01": func(o *service.Options, _ *service.Addresses) { o.Public.HTTPAddr = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, files := newPebble(t), t.TempDir()
			servicetest.IssueCertificate(t, files, "*.files.example.com")
			s := startACME(t, func(o *service.Options) {
				p.options(o)
				o.Public.TLSCerts = []string{filepath.Join(files, "tls.crt")}
				o.Public.TLSKeys = []string{filepath.Join(files, "tls.key")}
				only(o, &service.Addresses{})
			}, "*.example.com")
			asked := s.Addrs
			only(&s.Options, &asked)
			s.Roots, _ = p.start(asked, 3600)
			s.bind("https://given.files.example.com")
			s.bind("https://shop.example.com")
			s.await("shop.example.com")
			if status, body := s.GetPage("https://shop.example.com"); status != http.StatusOK || body != "hello" {
				t.Errorf("the endpoint answers %d %q", status, body)
			}
			for _, host := range []string{"unknown.example.com", "unknown.example.net"} {
				if s.leaf(host) != nil {
					t.Errorf("%s has a certificate", host)
				}
			}
			s.bind("https://later.example.com")
			s.await("later.example.com")
			if asked := p.asked.String(); strings.Contains(asked, "unknown") || strings.Contains(asked, "files") {
				t.Errorf("pebble was asked for other names:\n%s", asked)
			}
			for _, want := range []string{`fairlead_server_certificate_expiry_timestamp_seconds{use="acme"} `,
				"fairlead_server_acme_remaining_life_ratio 0.9"} {
				if !strings.Contains(s.ScrapeMetrics(), want) {
					t.Errorf("there is no metric %s", want)
				}
			}
		})
	}
}

// TestACME_ReplicasShareOrder lets the directory ask one replica what another ordered.
func TestACME_ReplicasShareOrder(t *testing.T) {
	t.Parallel()
	p, g := newPebble(t), newReplicaGroup(t)
	options := func(o *service.Options) { p.options(o); g.options(o) }
	one := startACME(t, options, "shop.example.com")
	two := &acmeServer{&servicetest.PublicServer{Server: servicetest.Start(t, options)}}
	awaitPeers(1, one.Server, two.Server)
	one.Roots, _ = p.start(two.Addrs, 3600)
	two.Roots = one.Roots
	one.bind("https://shop.example.com")
	if first, second := one.await("shop.example.com"), two.await("shop.example.com"); !first.Equal(second) {
		t.Error("the replicas have different certificates")
	}
	must.Succeed(t, one.StopAndWait())
	if two.await("shop.example.com"); p.issued() != 1 {
		t.Errorf("%d certificates were issued", p.issued())
	}
}

// TestACME_RenewsWhileGranted holds that certificates are renewed, and that one whose grant was revoked
// is deleted when it is over.
func TestACME_RenewsWhileGranted(t *testing.T) {
	t.Parallel()
	p := newPebble(t)
	s := startACME(t, p.options, "kept.example.com", "revoked.example.com")
	s.Roots, _ = p.start(s.Addrs, 20)
	s.bind("https://kept.example.com")
	s.bind("https://revoked.example.com")
	first := s.await("kept.example.com")
	s.await("revoked.example.com")
	st := s.OpenStore()
	must.Succeed(t, st.RevokeDomain(servicetest.Context(t), s.Account, "revoked.example.com"))
	asked := strings.Count(p.asked.String(), "revoked")
	servicetest.Eventually(t, "a renewal", func() bool { return !s.await("kept.example.com").Equal(first) })
	servicetest.Eventually(t, "the other certificate's end", func() bool {
		rows, err := st.ACMEVersions(servicetest.Context(t), store.ACMECertificate)
		must.Succeed(t, err)
		return rows["kept.example.com"] != 0 && rows["revoked.example.com"] == 0
	})
	if again := strings.Count(p.asked.String(), "revoked"); again != asked {
		t.Error("a certificate was ordered without a grant")
	}
}

// TestACME_KeepsCertificateWithoutDirectory holds that a restart orders nothing, and what is in
// service stays while the directory is down; and that the directory may forget the account.
func TestACME_KeepsCertificateWithoutDirectory(t *testing.T) {
	t.Parallel()
	p := newPebble(t)
	s := startACME(t, p.options, "*.example.com")
	var stop func()
	s.Roots, stop = p.start(s.Addrs, 30)
	s.bind("https://shop.example.com")
	first := s.await("shop.example.com")
	stop()
	must.Succeed(t, s.StopAndWait())
	again := startACME(t, func(o *service.Options) {
		p.options(o)
		o.DataDir = s.Options.DataDir
	})
	again.Roots = s.Roots
	if !again.await("shop.example.com").Equal(first) {
		t.Error("the restart changed the certificate")
	}
	servicetest.Eventually(t, "a failed renewal", func() bool {
		return strings.Contains(again.Log.String(), "see that this server reaches the directory")
	})
	if !again.await("shop.example.com").Equal(first) {
		t.Error("the certificate did not stay")
	}
	again.Roots, stop = p.start(again.Addrs, 3600)
	again.bind("https://new.example.com")
	again.await("new.example.com")
	stop()
	again.Roots, _ = p.start(again.Addrs, 3600)
	again.bind("https://newer.example.com")
	again.await("newer.example.com")
}

// TestACME_FailureSaysWhatToDo orders for a host whose ports lead elsewhere: the log has the directory's
// sentence and the remedy, and so has the agent.
func TestACME_FailureSaysWhatToDo(t *testing.T) {
	t.Parallel()
	p := newPebble(t)
	s := startACME(t, p.options, "*.example.com")
	p.start(service.Addresses{}, 3600)
	s.bind("https://shop.example.com")
	const remedy = "let port 80 of shop.example.com lead to --public-http-addr"
	servicetest.Eventually(t, "the failure", func() bool { return strings.Contains(s.Log.String(), remedy) })
	port := 8443
	servicetest.Eventually(t, "an agent that is told", func() bool {
		port++
		b := s.Bind("public", "https://shop.example.com:"+strconv.Itoa(port), http.NotFound)
		return strings.Contains(b.Unreachable, remedy)
	})
}
