// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// impostor returns a service that answers in the agent's place. What its Accept returns goes to
// accepted.
func impostor(t testing.TB, as *sealed.Identity, accepted chan<- error) serviceFunc {
	return func(forwarder, _ *tunnel.Stream) {
		in, err := as.Accept(timeoutContext(t), forwarder)
		accepted <- err
		if err == nil {
			_, _ = in.Open()
		}
	}
}

// wantReason compares the reason of an *UntrustedError; "" = no error.
func wantReason(t testing.TB, err error, want sealed.Reason) {
	t.Helper()
	var untrusted *sealed.UntrustedError
	switch {
	case want == "" && err != nil:
		t.Errorf("got %v, want no error", err)
	case want != "" && (!errors.As(err, &untrusted) || untrusted.Reason != want):
		t.Errorf("got %v, want %s", err, want)
	}
}

func names(texts ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.URIs = nil
		for _, text := range texts {
			u, _ := url.Parse(text)
			c.URIs = append(c.URIs, u)
		}
	}
}

func dates(from, until time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(until) }
}

func TestTrust_RefusesImpostors(t *testing.T) {
	t.Parallel()
	w, owner, other := newWorld(t), newAuthority(t), newAuthority(t)
	const (
		known   = "authorities" // the root that signs the certificate
		unknown = "other authorities"
		pinned  = "keys" // the certificate's key
		swapped = "other keys"
		own     = "fairlead://ac-1/tcp/db.demo:5432"
	)
	for name, c := range map[string]struct {
		mode   string
		change func(*x509.Certificate)
		want   sealed.Reason
	}{
		"signed":           {known, nil, ""},
		"signed, wildcard": {known, names("fairlead://ac-1/tcp/*.demo:5432"), ""},
		"pinned":           {pinned, nil, ""},
		"pinned, expired":  {pinned, dates(-2*time.Hour, -time.Hour), ""},
		"other authority":  {unknown, nil, sealed.KeyUnknown},
		"other key":        {swapped, nil, sealed.KeyChanged},
		"other account": {known, names("fairlead://ac-1/tcp/x.demo:1", "fairlead://ac-2/tcp/db.demo:5432"),
			sealed.NameMismatch},
		"other name":                     {known, names("fairlead://ac-1/tcp/web.demo:5432"), sealed.NameMismatch},
		"other port":                     {known, names("fairlead://ac-1/tcp/db.demo:5433"), sealed.NameMismatch},
		"other scheme":                   {known, names("fairlead://ac-1/http/db.demo:5432"), sealed.NameMismatch},
		"pinned, other name":             {pinned, names("fairlead://ac-1/tcp/web.demo:5432"), sealed.NameMismatch},
		"expired":                        {known, dates(-2*time.Hour, -time.Hour), sealed.Expired},
		"expired, by a clock ahead":      {known, dates(-2*time.Hour, -4*time.Minute), ""},
		"expired 6 minutes ago":          {known, dates(-2*time.Hour, -6*time.Minute), sealed.Expired},
		"not valid yet":                  {known, dates(time.Hour, 2*time.Hour), sealed.Expired},
		"not valid yet, by a clock late": {known, dates(4*time.Minute, time.Hour), ""},
		"valid in 6 minutes":             {known, dates(6*time.Minute, time.Hour), sealed.Expired},
		"for clients only": {known, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}, sealed.KeyUnknown},
		"not for signatures": {known, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment },
			sealed.KeyUnknown},
		"an authority": {known, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true },
			sealed.KeyUnknown},
		"expired, other authority's chain": {unknown, names(own), sealed.KeyUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			as, key := identity(t, owner.sign(t, c.change))
			to := newTrust(t, map[string]sealed.TrustOptions{
				known:   {Authorities: []*x509.Certificate{other.cert, owner.cert}},
				unknown: {Authorities: []*x509.Certificate{other.cert}},
				pinned:  {Keys: []trust.Pin{{}, key}},
				swapped: {Keys: []trust.Pin{{1}}},
			}[c.mode])
			accepted := make(chan error, 1)
			below, _ := w.open(t, impostor(t, as, accepted))
			got, err := to.Connect(timeoutContext(t), below, sealed.Header{URL: endpoint})
			wantReason(t, err, c.want)
			if headerErr := <-accepted; (headerErr == nil) != (c.want == "") {
				t.Errorf("the other end got the header, or %v", headerErr)
			}
			var untrusted *sealed.UntrustedError
			if errors.As(err, &untrusted) && untrusted.Key != key || err == nil && got.Peer() != key {
				t.Errorf("the key is not that of the other end")
			}
		})
	}
}

func TestTrust_ResumesForOneEndpoint(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, key := identity(t, owner.sign(t, names("fairlead://ac-1/tcp/*.demo:5432")))
	to := owner.trust(t)
	for i, c := range []struct {
		host    string
		to      *sealed.Trust
		resumed bool
	}{
		{"db.demo", to, false}, {"db.demo", to, true}, {"web.demo", to, false}, {"web.demo", to, true},
		{"db.demo", to, true}, {"db.demo", owner.trust(t), false},
	} {
		forwarder, agent := w.open(t, honest)
		u := endpoint
		u.Host = c.host
		e := connect(t, forwarder, agent, c.to, as, sealed.Header{URL: u})
		must.Succeed(t, errors.Join(e.forwarderErr, e.agentErr))
		if e.forwarder.Resumed() != c.resumed || e.forwarder.Peer() != key {
			t.Errorf("connection %d to %s: resumed: %t", i, c.host, e.forwarder.Resumed())
		}
	}
}

// A ticket must not outlive the trust under which it was made, even where it is still used.
func TestTrust_VerifiesResumedSessions(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, key := identity(t, owner.sign(t, nil))
	web := account.EndpointURL{Scheme: "tcp", Host: "web.demo", Port: 5432}
	same, others := []*x509.Certificate{owner.cert}, []*x509.Certificate{newAuthority(t).cert}
	older := owner.trust(t)
	w.mustConnect(t, older, as, honest)
	for name, c := range map[string]struct {
		options sealed.TrustOptions
		url     account.EndpointURL
		want    sealed.Reason
	}{
		"same authorities":  {sealed.TrustOptions{Authorities: same}, endpoint, ""},
		"other authorities": {sealed.TrustOptions{Authorities: others}, endpoint, sealed.KeyUnknown},
		"other keys":        {sealed.TrustOptions{Keys: []trust.Pin{{1}}}, endpoint, sealed.KeyChanged},
		"other endpoint":    {sealed.TrustOptions{Keys: []trust.Pin{key}}, web, sealed.NameMismatch},
	} {
		newer := newTrust(t, c.options)
		newer.UseTickets(c.url, older, endpoint)
		forwarder, agent := w.open(t, honest)
		e := connect(t, forwarder, agent, newer, as, sealed.Header{URL: c.url})
		wantReason(t, e.forwarderErr, c.want)
		if c.want == "" && !e.forwarder.Resumed() {
			t.Errorf("%s: the ticket was not used", name)
		}
		w.mustConnect(t, older, as, honest) // a ticket for the next one
	}
}

func TestIdentity_RenewedCertificateEndsTickets(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	var mu sync.Mutex
	var failure error
	cert := owner.sign(t, nil)
	as, err := sealed.NewIdentity(sealed.IdentityOptions{Account: ownAccount,
		Certificate: func() (*tls.Certificate, error) {
			mu.Lock()
			defer mu.Unlock()
			read := cert // as one who reads a file each time
			return &read, failure
		}})
	must.Succeed(t, err)
	before, to := as.Key(), owner.trust(t)
	w.mustConnect(t, to, as, honest)
	if !w.mustConnect(t, to, as, honest).forwarder.Resumed() {
		t.Error("the second connection was not resumed")
	}
	mu.Lock()
	failure = errors.New("the file is being written")
	mu.Unlock()
	if !w.mustConnect(t, to, as, honest).forwarder.Resumed() {
		t.Error("while the certificate could not be read, the one before was not used")
	}
	mu.Lock()
	cert, failure = owner.sign(t, nil), nil
	mu.Unlock()
	e := w.mustConnect(t, to, as, honest)
	if e.forwarder.Resumed() || e.forwarder.Peer() == before || e.forwarder.Peer() != as.Key() {
		t.Errorf("after the renewal: resumed %t, key %s", e.forwarder.Resumed(), sealed.FormatKey(e.forwarder.Peer()))
	}
}

func TestOptions_AreChecked(t *testing.T) {
	t.Parallel()
	owner := newAuthority(t)
	for name, o := range map[string]sealed.TrustOptions{
		"no account": {Keys: []trust.Pin{{}}},
		"nothing":    {Account: "a"},
		"two kinds":  {Account: "a", Authorities: []*x509.Certificate{owner.cert}, Keys: []trust.Pin{{}}},
	} {
		if _, err := sealed.NewTrust(o); err == nil {
			t.Errorf("trust with %s", name)
		}
	}
	cert := static(owner.sign(t, nil))
	for name, o := range map[string]sealed.IdentityOptions{
		"no account":                {Certificate: cert},
		"another account's names":   {Account: "ac-2", Certificate: cert},
		"no certificate":            {Account: ownAccount, Certificate: static(tls.Certificate{})},
		"no authorities of callers": {Account: ownAccount, Certificate: cert, RequireCaller: true},
	} {
		if _, err := sealed.NewIdentity(o); err == nil {
			t.Errorf("identity with %s", name)
		}
	}
}
