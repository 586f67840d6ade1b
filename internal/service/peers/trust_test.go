// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// awaitError waits until the status of the peer has an error with the text.
func (r *testReplica) awaitError(tb testing.TB, id, text string) {
	tb.Helper()
	last := ""
	defer func() {
		if tb.Failed() {
			tb.Logf("last error %q", last)
		}
	}()
	wait.Until(tb, "the error "+text, func() bool {
		for _, s := range r.Status() {
			if s.ID == id {
				last = s.Error
				return !s.Connected && strings.Contains(s.Error, text)
			}
		}
		return false
	})
}

func TestPeers_RefuseAnotherSecretKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one := c.start("rp-1")
	l := listen(t)
	c.registry.add("rp-2", l.Addr().String())
	two := c.startOn(l, Options{ID: "rp-2", Key: secret(t, 2)})
	one.awaitError(t, "rp-2", "give all replicas the same secret key")
	two.awaitError(t, "rp-1", "give all replicas the same secret key")
	if _, err := one.Choose(t.Context(), testQuery(), nil); account.CodeOf(err) != account.CodeEndpointOffline {
		t.Errorf("error %v", err)
	}
}

func TestPeers_NameAddressThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	lines := new(logbuffer.Buffer)
	two := c.start("rp-2")
	c.registry.add("rp-3", two.addr)
	l := listen(t)
	c.registry.add("rp-1", l.Addr().String())
	one := c.startOn(l, Options{ID: "rp-1", Key: secret(t, 1),
		Logger: slog.New(slog.NewTextHandler(lines, nil))})
	one.awaitError(t, "rp-3", "relay address "+two.addr+" leads to replica rp-2, not to rp-3")
	c.linked(one, two)
	if n := strings.Count(lines.String(), "leads to replica"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, lines)
	}
}

// dialAs connects to a replica with the certificate and returns the error of the handshake or of
// the first read.
func dialAs(t *testing.T, to *testReplica, config *tls.Config) error {
	t.Helper()
	config.NextProtos = []string{tunnel.ALPN}
	conn, err := tls.Dial("tcp", to.addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err = conn.Read(make([]byte, 1)) // the server reports its verification only now
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // it waits for a hello
	}
	return err
}

// askAs asks a replica for its records of traffic with the certificate.
func askAs(t *testing.T, to *testReplica, config *tls.Config) error {
	t.Helper()
	config = config.Clone()
	config.NextProtos = nil
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+to.addr+pathTraffic,
		strings.NewReader("question"))
	must.Succeed(t, err)
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

func TestPeers_VerifyCallers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one := c.start("rp-1")
	authority := one.identity.authority
	foreign, err := newAuthority(secret(t, 3))
	must.Succeed(t, err)
	for name, caller := range map[string]struct {
		authority *authorityAt
		id        string
		ok        bool
	}{
		"registered":             {&authorityAt{authority, 0}, "rp-2", true},
		"clock behind a little":  {&authorityAt{authority, 50 * time.Second}, "rp-2", true},
		"not registered":         {&authorityAt{authority, 0}, "rp-9", false},
		"itself":                 {&authorityAt{authority, 0}, "rp-1", false},
		"another secret key":     {&authorityAt{foreign, 0}, "rp-2", false},
		"expired":                {&authorityAt{authority, -25 * time.Hour}, "rp-2", false},
		"not valid yet":          {&authorityAt{authority, 2 * time.Minute}, "rp-2", false},
		"without a certificate":  {nil, "rp-2", false},
		"no name in certificate": {&authorityAt{authority, 0}, "", false},
	} {
		c.registry.add("rp-2", "127.0.0.1:1")
		t.Run(name, func(t *testing.T) {
			config := one.identity.clientTLS("rp-1")
			config.GetClientCertificate = nil
			if caller.authority != nil {
				issued, err := caller.authority.issue(caller.id, time.Now().Add(caller.authority.offset))
				must.Succeed(t, err)
				config.Certificates = []tls.Certificate{*issued}
			}
			if err := askAs(t, one, config); (err == nil) != caller.ok {
				t.Errorf("a question: error %v, want accepted: %t", err, caller.ok)
			}
			if err := dialAs(t, one, config); (err == nil) != caller.ok {
				t.Errorf("error %v, want accepted: %t", err, caller.ok)
			}
		})
	}
}

// authorityAt issues certificates as a replica whose clock is ahead by offset.
type authorityAt struct {
	*authority
	offset time.Duration
}

func TestPeers_AskRegistryForUnknownCallers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one := c.start("rp-1")
	wait.Until(t, "the first read", func() bool { return one.registry.has("rp-1") })
	c.registry.mu.Lock()
	before := c.registry.reads
	c.registry.mu.Unlock()
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if err := one.listener.verifyCaller(t.Context(), "rp-8"); err == nil {
				t.Error("a replica that is not registered is accepted")
			}
		})
	}
	calls.Wait()
	began := time.Now()
	for range 2 {
		if err := one.listener.verifyCaller(t.Context(), "rp-8"); err == nil {
			t.Error("a replica that is not registered is accepted")
		}
	}
	if took := time.Since(began); took < registryPause {
		t.Errorf("two calls, one after the other, read the registry twice within %v", took)
	}
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	if n := c.registry.reads - before; n < 1 || n > 5 {
		t.Errorf("20 calls caused %d reads", n)
	}
}

func TestIdentity_RenewsCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		authority, err := newAuthority(secret(t, 1))
		must.Succeed(t, err)
		who := &identity{authority: authority, id: "rp-1"}
		first, _ := who.certificate()
		time.Sleep(11 * time.Hour)
		if same, _ := who.certificate(); same != first {
			t.Error("renewed before half its life")
		}
		time.Sleep(2 * time.Hour)
		if next, _ := who.certificate(); next == first || !next.Leaf.NotAfter.After(time.Now().Add(23*time.Hour)) {
			t.Error("not renewed after half its life")
		}
	})
}
