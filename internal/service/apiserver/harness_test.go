// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestMain(m *testing.M) {
	// net/http gives a client that it has refused half a second to read why, even after the server
	// is closed: longer than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const base = "https://fairlead.example.com:8443"

// api is the real API over real TLS on a real store.
type api struct {
	*storetest.Fixture
	t     *testing.T
	api   apiserver.Handler
	srv   *httptest.Server
	stop  context.CancelFunc // what a stopping server does to its requests
	admin string
	log   *logbuffer.Buffer
}

func newAPI(t *testing.T, adjust ...func(*apiserver.Options)) *api {
	t.Helper()
	dir := t.TempDir()
	a := &api{t: t, log: &logbuffer.Buffer{},
		Fixture: storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
			opt.DataDir = dir
			return store.Open(context.WithoutCancel(t.Context()), opt)
		})}
	a.admin = a.key(a.AccountID, account.ScopeAdmin)
	opt := apiserver.Options{Store: a.Store, CheckPolicy: testPolicy, SharedOptions: httpkit.SharedOptions{
		Revoker: a.Store, Redactor: testRedactor{}, Backends: idleBackends{}, BaseURL: base + "/",
		Logger: slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
	admitParts(&opt)
	for _, change := range adjust {
		change(&opt)
	}
	a.serve(opt)
	return a
}

// idleBackends are httpkit.Backends that were not used yet.
type idleBackends struct{}

func (idleBackends) ActiveChild(string, string) string { return "" }
func (idleBackends) CheckStaticAddress(string) error   { return nil }

// testRedactor is a httpkit.Redactor.
type testRedactor struct{}

func (testRedactor) RedactionMark(accountID, secret string) string {
	return testMark(accountID, secret)
}

func testMark(accountID, secret string) string {
	return fmt.Sprintf("redacted:%08x", crc32.ChecksumIEEE([]byte(accountID+secret)))
}

// testPolicy takes any document that does not say "wrong"; one that names a backend or an internal
// host refers to it.
func testPolicy(text, scheme, binding string) (account.PolicyFacts, error) {
	if strings.Contains(text, "wrong") {
		return account.PolicyFacts{}, account.Invalid("traffic_policy", "wrong",
			"line 1, column 1: no such action for "+scheme+" and "+binding)
	}
	return account.PolicyFacts{Digest: text, Backends: backendID.FindAllString(text, -1),
		InternalHosts: internalHost.FindAllString(text, -1)}, nil
}

var (
	backendID    = regexp.MustCompile(`bkd[a-z]{2}-[0-9a-v]{26}`)
	internalHost = regexp.MustCompile(`[a-z]+\.internal`)
)

// serve starts the server.
func (a *api) serve(opt apiserver.Options) {
	a.api = apiserver.New(opt)
	a.srv = httptest.NewUnstartedServer(a.api)
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.srv.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	a.srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.srv.EnableHTTP2 = true
	a.srv.StartTLS()
	a.t.Cleanup(func() { a.stop(); a.srv.Close() })
	a.srv.Client().Transport.(*http.Transport).ForceAttemptHTTP2 = false
	a.srv.Client().Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
}

// useHTTP2 makes the client speak HTTP/2.
func (a *api) useHTTP2() {
	transport := a.srv.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2, transport.TLSClientConfig.NextProtos = true, []string{"h2"}
	a.srv.Client().Transport = transport
	a.t.Cleanup(transport.CloseIdleConnections)
}

// key makes an API key and returns its secret.
func (a *api) key(accountID string, scopes ...account.Scope) string {
	a.t.Helper()
	_, secret, err := a.Store.IssueAPIKey(context.WithoutCancel(a.t.Context()), accountID, "", scopes, nil)
	storetest.Must(a.t, err)
	return secret
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	text   string
	body   map[string]any
}

// request makes a request with the headers that every request needs.
func (a *api) request(method, path, key, body string) *http.Request {
	a.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.srv.URL+path, r)
	storetest.Must(a.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Service-Version", "2")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func (a *api) send(req *http.Request) *answer {
	a.t.Helper()
	client := a.srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	storetest.Must(a.t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	storetest.Must(a.t, err)
	got := &answer{t: a.t, status: res.StatusCode, header: res.Header, text: string(raw)}
	if len(raw) > 0 {
		storetest.Must(a.t, json.Unmarshal(raw, &got.body))
	}
	return got
}

func (a *api) do(method, path, key, body string) *answer {
	a.t.Helper()
	return a.send(a.request(method, path, key, body))
}

func (a *api) get(path string) *answer { a.t.Helper(); return a.do(http.MethodGet, path, a.admin, "") }

// want fails unless the answer has the status and, for errors, the code and a body of the
// documented shape.
func (r *answer) want(status int, code ...account.Code) *answer {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.text)
	}
	op := r.header.Get("Operation-Id")
	if !account.ValidID(account.PrefixOperation, op) {
		r.t.Fatalf("operation id %q", op)
	}
	for _, c := range code {
		details, _ := r.body["details"].(map[string]any)
		if r.body["error_code"] != string(c) || r.body["status_code"] != float64(status) || r.body["msg"] == "" ||
			details["operation_id"] != op {
			r.t.Fatalf("error body %s, want code %s and operation id %s", r.text, c, op)
		}
	}
	return r
}

// rules returns the broken rules that the error lists, as "field: rule".
func (r *answer) rules() map[string]string {
	r.t.Helper()
	var body struct{ Errors []account.FieldError }
	storetest.Must(r.t, json.Unmarshal([]byte(r.text), &body))
	all := map[string]string{}
	for _, f := range body.Errors {
		all[f.Field] = f.Rule
	}
	return all
}

// into decodes the answer.
func into[T any](r *answer) T {
	r.t.Helper()
	var v T
	storetest.Must(r.t, json.Unmarshal([]byte(r.text), &v))
	return v
}
