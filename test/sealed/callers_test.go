// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// greets reports whether a call gets what the upstream of digest("got ") answers, or why not.
func greets(t *testing.T, c call) string {
	t.Helper()
	_, _ = io.WriteString(c, "hello")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err == nil && string(got) == "got hello" {
		return ""
	}
	f := servicetest.Receive(t, c.failure, "failure")
	if f == nil {
		t.Fatal("a call without an answer has no failure")
	}
	return f.Msg
}

// TestSealed_CallersProveThemselves holds that an agent which requires proof serves forwarders that
// have it, and no others, and none whose authority was taken out of its file, whatever they resume.
func TestSealed_CallersProveThemselves(t *testing.T) {
	overBothPaths(t, testSealedCallersProveThemselves)
}

func testSealedCallersProveThemselves(t *testing.T) {
	r := newRig(t)
	var roots atomic.Pointer[x509.CertPool]
	roots.Store(r.owner.Pool())
	identity := r.owner.Identity(databaseURL, sealtest.Callers(roots.Load).Required)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("got ")), identity))
	proven := r.owner.Trust(r.owner.Caller("cluster-1", time.Hour))
	for range 2 { // the second resumes the session
		if why := greets(t, r.call(id, proven)); why != "" {
			t.Error(why)
		}
	}
	const want = "refused the connection: the caller is not proven: "
	if why := greets(t, r.call(id, r.owner.Trust())); !strings.Contains(why, want+"it has no certificate") {
		t.Error(why)
	}
	roots.Store(sealtest.NewOwner(t, r.owner.Account).Pool())
	if why := greets(t, r.call(id, proven)); !strings.Contains(why, want+"x509: certificate signed by unknown") {
		t.Error(why)
	}
}

// TestSealed_KeyChangesUnderRunningAgent holds that the service and the agent's user learn of a new key
// once callers meet it.
func TestSealed_KeyChangesUnderRunningAgent(t *testing.T) {
	overBothPaths(t, testSealedKeyChangesUnderRunningAgent)
}

func testSealedKeyChangesUnderRunningAgent(t *testing.T) {
	r := newRig(t)
	var cert atomic.Pointer[tls.Certificate]
	cert.Store(r.owner.Server(databaseURL))
	identity := r.owner.Identity(databaseURL, func(o *sealed.IdentityOptions) {
		o.Certificate = func() (*tls.Certificate, error) { return cert.Load(), nil }
	})
	online := r.start("in-a", r.endpoint(upstream(t, digest("got ")), identity))
	first := servicetest.Receive(t, online, "bind")
	cert.Store(r.owner.Server(databaseURL))
	if why := greets(t, r.call(first.EndpointID, r.owner.Trust())); why != "" {
		t.Error(why)
	}
	again, want := servicetest.Receive(t, online, "bind with the new key"), sealed.FormatKey(identity.Key())
	if again.SealKey != want || again.SealKey == first.SealKey || !again.Reconnected ||
		again.EndpointID != first.EndpointID || again.SessionID != first.SessionID {
		t.Errorf("%+v after %+v, want key %s", again, first, want)
	}
	var shown account.Endpoint
	status := r.CallAPI(http.MethodGet, "/endpoints/"+first.EndpointID, nil, &shown)
	if status != http.StatusOK || shown.SealKey != want {
		t.Errorf("%d: the service shows %s, want %s", status, shown.SealKey, want)
	}
}
