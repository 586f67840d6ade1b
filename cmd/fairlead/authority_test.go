// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// handshake connects to the service with the trust of config, which keeps tickets, and reports whether
// the session was resumed.
func handshake(t *testing.T, r *servicetest.Server, config *tls.Config) (resumed bool, err error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r.NewAPIRequest("GET", "/endpoints", nil))
	if err != nil {
		return false, err
	}
	servicetest.ReadAll(t, answer.Body)
	_ = answer.Body.Close()
	return answer.TLS.DidResume, nil
}

// callAll calls the address again and again until the returned function is called, which reports how many
// calls there were, and how many failed.
func callAll(t *testing.T, address string) (end func() (calls, failed int64)) {
	var calls, failed atomic.Int64
	ended, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				if status, _, _ := get(t, address); status != http.StatusOK {
					failed.Add(1)
				}
				calls.Add(1)
			}
		}
	}()
	return func() (int64, int64) {
		close(stop)
		<-ended
		return calls.Load(), failed.Load()
	}
}

// checkConnected checks that the commands have printed nothing of a lost connection.
func checkConnected(t *testing.T, commands ...*runningCommand) {
	t.Helper()
	for _, c := range commands {
		if printed := c.out.String(); strings.Contains(printed, "reconnecting") {
			t.Errorf("a connection was lost:\n%s", printed)
		}
	}
}

// trusting returns a client that trusts the authority only.
func trusting(t *testing.T, ca *x509.Certificate) *tls.Config {
	t.Helper()
	config, err := trust.Options{CAPEM: pki.EncodeCertificate(ca)}.ClientConfig()
	must.Succeed(t, err)
	return config
}

// TestAuthority_ReplacedUnderTraffic replaces the service's authority while an agent serves and
// another command calls, which were both given the first one only.
func TestAuthority_ReplacedUnderTraffic(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("hello"))
	}))
	t.Cleanup(page.Close)
	home, port := t.TempDir(), page.URL[strings.LastIndex(page.URL, ":")+1:]
	agentArgs := []string{"http", port, "--url", "http://hello.demo"}
	serving := runAt(t, home, r, r.Authtoken, agentArgs...).printed("http://hello.demo")
	caller := runWith(t, r, *r.CreateAuthtoken("connect:*").Token, "connect", "http://hello.demo")
	address := caller.address("http://hello.demo")
	wait.Until(t, "an answer", func() bool { status, _, _ := get(t, address); return status == http.StatusOK })
	old := r.ClientTLS()
	_, err := handshake(t, r, old)
	must.Succeed(t, err)
	rotation := pki.NewRotation(r.Options.DataDir, nil)

	end := callAll(t, address)
	must.Succeed(t, rotation.AddNext(t.Context(), time.Now()))
	wait.Until(t, "what the agent learnt in its state directory", func() bool {
		files, err := filepath.Glob(filepath.Join(home, ".local", "state", "fairlead", "authorities-*.pem"))
		return err == nil && len(files) == 1
	})
	must.Succeed(t, rotation.Promote(t.Context()))
	all, err := rotation.Read(t.Context())
	must.Succeed(t, err)
	trustsNew, trustsOld := trusting(t, all.Current), trusting(t, all.Retiring)
	wait.Until(t, "a certificate of the next authority", func() bool {
		_, err := handshake(t, r, trustsNew)
		return err == nil
	})
	if _, err := handshake(t, r, trustsOld); trust.ProblemOf(err) != trust.UnknownAuthority {
		t.Errorf("a client that trusts the old authority only: %v", err)
	}
	if resumed, err := handshake(t, r, old); err != nil || !resumed {
		t.Errorf("the ticket of before is not good until the old authority is retired: %v", err)
	}
	if calls, failed := end(); failed > 0 || calls < 10 {
		t.Errorf("%d of %d calls failed", failed, calls)
	}
	checkConnected(t, serving, caller)

	serving.stop()
	<-serving.code
	runAt(t, home, r, r.Authtoken, agentArgs...).printed("http://hello.demo")
	wait.Until(t, "an answer of the agent that was restarted", func() bool {
		status, _, _ := get(t, address)
		return status == http.StatusOK
	})
	must.Succeed(t, rotation.Retire(t.Context()))
	wait.Until(t, "the end of the ticket", func() bool {
		_, err := handshake(t, r, old)
		return trust.ProblemOf(err) == trust.WrongPin
	})
	if status, _, _ := get(t, address); status != http.StatusOK {
		t.Errorf("a call after the old authority was retired: %d", status)
	}
}
