// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/doctor"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// storedAccount is the doctor.Account of the service's own account.
type storedAccount struct {
	st *store.Store
	id string
}

func (a storedAccount) ListEndpoints(ctx context.Context, f account.EndpointFilter) (
	string, []account.Endpoint, error,
) {
	page, err := a.st.ListEndpoints(ctx, a.id, f, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return "", nil, err
	}
	return a.id, page.Endpoints, nil
}

// loopbackDNS resolves the hosts of example.com, but not absent.example.com, and those of test.
type loopbackDNS struct{}

func (loopbackDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if strings.HasSuffix(host, ".test") || strings.HasSuffix(host, "example.com") && host != "absent.example.com" {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return nil, errors.New("no such host")
}

// startWithBrokenHops runs a service with public endpoints, of which some have a broken hop.
func startWithBrokenHops(t *testing.T) *servicetest.PublicServer {
	t.Helper()
	w := servicetest.StartPublic(t)
	st := w.OpenStore()
	w.Bind("public", "https://app.example.com", servicetest.DescribeRequest)
	w.Bind("public", "https://a.app.example.com", servicetest.DescribeRequest)
	w.Bind("public", "http://plain.example.com", servicetest.DescribeRequest)
	down := w.StartAgent(tunnel.Bind{URL: "https://down.example.com", Binding: "public"}, closedport.Reserve(t))
	servicetest.Receive(t, down.Bound, "bind")
	gone := w.StartAgent(tunnel.Bind{URL: "https://gone.example.com", Binding: "public"}, closedport.Reserve(t))
	servicetest.Receive(t, gone.Bound, "bind")
	gone.Stop()
	revoked := "http://revoked.test:" + strconv.Itoa(w.Addrs.HTTP.(*net.TCPAddr).Port)
	_, err := st.GrantDomain(t.Context(), w.Account, "revoked.test")
	must.Succeed(t, err)
	w.Bind("public", revoked, servicetest.DescribeRequest)
	must.Succeed(t, st.RevokeDomain(t.Context(), w.Account, "revoked.test"))
	servicetest.Eventually(t, "end of the grant", func() bool {
		res, err := w.NewBrowser().Get(revoked)
		if err != nil {
			return false // a request that is being answered is ended with the grant
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusNotFound
	})
	return w
}

// TestDoctor_NamesBrokenHopOfPublicEndpoint checks public endpoints of a running service. HTTP and
// HTTPS stand for the ports of its listeners.
func TestDoctor_NamesBrokenHopOfPublicEndpoint(t *testing.T) {
	t.Parallel()
	w := startWithBrokenHops(t)
	st := w.OpenStore()
	httpPort := strconv.Itoa(w.Addrs.HTTP.(*net.TCPAddr).Port)
	httpsPort := strconv.Itoa(w.Addrs.HTTPS.(*net.TCPAddr).Port)
	_, closed, _ := net.SplitHostPort(closedport.Reserve(t))
	none, secure := x509.NewCertPool(), w.Roots
	for name, c := range map[string]struct {
		url           string
		noKey         bool
		roots         *x509.CertPool
		broken, wants string
	}{
		"all in order":     {"https://app.example.com:HTTPS", false, secure, "", "answers at this port, too"},
		"no API key":       {"https://app.example.com:HTTPS", true, secure, "", "the edge has it"},
		"without TLS":      {"http://plain.example.com:HTTP", false, nil, "", "resolves to 127.0.0.1"},
		"no DNS record":    {"http://absent.example.com:HTTP", false, nil, path.HopDNS, "curl -H 'Host: absent."},
		"no listener":      {"http://app.example.com:" + closed, false, nil, path.HopListener, "docker -p"},
		"not covered":      {"https://a.app.example.com:HTTPS", false, secure, path.HopCertificate, "no certificate"},
		"unknown CA":       {"https://app.example.com:HTTPS", false, none, path.HopCertificate, "--ca-file"},
		"no TLS there":     {"https://app.example.com:HTTP", false, secure, path.HopCertificate, "--public-https-addr"},
		"upstream is down": {"https://down.example.com:HTTPS", false, secure, path.HopUpstream, "ERR_FL_3002"},
		"agent is gone":    {"https://gone.example.com:HTTPS", false, secure, path.HopAgent, "--binding public"},
		"gone, no API key": {"https://gone.example.com:HTTPS", true, secure, path.HopAgent, "ERR_FL_3001"},
		"no such endpoint": {"https://none.example.com:HTTPS", false, secure, path.HopEndpoint, "ERR_FL_3003"},
		"another scheme":   {"http://none.example.com:HTTP", false, nil, path.HopEndpoint, "no public endpoint"},
		"domain revoked":   {"http://revoked.test:HTTP", false, nil, path.HopDomain, "fairlead-server domain grant"},
		"nothing, no key":  {"https://none.example.com:HTTPS", true, secure, path.HopAnswer, "fairlead login"},
	} {
		raw := strings.NewReplacer(":HTTPS", ":"+httpsPort, ":HTTP", ":"+httpPort).Replace(c.url)
		u, err := account.ParseBindingURL(account.BindingPublic, raw)
		must.Succeed(t, err)
		o := doctor.PublicOptions{URL: u, Server: "service.test", Resolver: loopbackDNS{}, Roots: c.roots,
			UserAgent: "test", Timeout: 5 * time.Second}
		if !c.noKey {
			o.Account = storedAccount{st, w.Account}
		}
		r := doctor.RunPublic(t.Context(), o)
		text, err := json.Marshal(r)
		must.Succeed(t, err)
		if r.Broken != c.broken || r.OK != (c.broken == "") ||
			!strings.Contains(strings.ReplaceAll(string(text), `\u0026`, "&"), c.wants) {
			t.Errorf("%s: want %q broken and %q, got %s", name, c.broken, c.wants, text)
		}
	}
}
