// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// ClientTLS returns TLS settings that trust the service's certificate.
func (r *Server) ClientTLS() *tls.Config {
	r.T.Helper()
	c, err := trust.Options{CASHA256: r.Addrs.CAFingerprint}.ClientConfig()
	must.Succeed(r.T, err)
	return c
}

// NewAPITransport returns a transport to the account API; its connections close with the test.
func (r *Server) NewAPITransport() *http.Transport {
	r.T.Helper()
	tr := &http.Transport{TLSClientConfig: r.ClientTLS(), ForceAttemptHTTP2: true}
	r.T.Cleanup(tr.CloseIdleConnections)
	return tr
}

// NewAPIRequest returns a request of the account API with the API key; the body is in as JSON, or
// empty when in is nil.
func (r *Server) NewAPIRequest(method, path string, in any) *http.Request {
	r.T.Helper()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		must.Succeed(r.T, err)
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(Context(r.T), method, "https://"+r.Addrs.Service.String()+path, body)
	must.Succeed(r.T, err)
	req.Header = http.Header{"Authorization": {"Bearer " + r.APIKey}, "Service-Version": {"2"}}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// CallAPI calls the account API over a connection of its own and returns the status; out may be
// nil.
func (r *Server) CallAPI(method, path string, in, out any) int {
	r.T.Helper()
	tr := &http.Transport{TLSClientConfig: r.ClientTLS(), ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(r.NewAPIRequest(method, path, in))
	must.Succeed(r.T, err)
	defer func() { _ = res.Body.Close() }()
	if out != nil {
		must.Succeed(r.T, json.NewDecoder(res.Body).Decode(out))
	}
	return res.StatusCode
}

// RequireStatus calls the account API and ends the test unless the answer has the status.
func (r *Server) RequireStatus(method, path string, in any, want int) {
	r.T.Helper()
	if status := r.CallAPI(method, path, in, nil); status != want {
		r.T.Fatalf("%s %s: status %d, want %d", method, path, status, want)
	}
}

// CreateObject creates an object through the account API; out gets the answer.
func (r *Server) CreateObject(path string, in, out any) {
	r.T.Helper()
	if status := r.CallAPI(http.MethodPost, path, in, out); status != http.StatusCreated {
		r.T.Fatalf("POST %s: status %d", path, status)
	}
}

// CreateAuthtoken creates an authtoken of the service's account with the ACL.
func (r *Server) CreateAuthtoken(acl ...string) account.Authtoken {
	r.T.Helper()
	var token account.Authtoken
	r.CreateObject("/credentials", map[string]any{"acl": acl}, &token)
	return token
}

// Credentials are an API key and an authtoken of an account, with all rights.
type Credentials struct{ AccountID, APIKey, Authtoken string }

// CreateAccount creates an account beside the service's own.
func (r *Server) CreateAccount() Credentials {
	r.T.Helper()
	st := r.OpenStore()
	other, err := st.CreateAccount(Context(r.T), "other")
	must.Succeed(r.T, err)
	c := Credentials{AccountID: other.ID}
	_, c.APIKey, err = st.IssueAPIKey(Context(r.T), other.ID, "", nil, nil)
	must.Succeed(r.T, err)
	_, c.Authtoken, err = st.IssueAuthtoken(Context(r.T), other.ID, "", []string{"bind:*", "connect:*"})
	must.Succeed(r.T, err)
	return c
}
