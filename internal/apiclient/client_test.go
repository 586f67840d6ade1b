// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// proxy listens for the one test that goes through it; net/http reads the environment once in a
// process. Loopback never takes a proxy.
var proxy net.Listener

func TestMain(m *testing.M) {
	var err error
	if proxy, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		panic(err)
	}
	_ = os.Setenv("HTTPS_PROXY", "http://"+proxy.Addr().String())
	goleak.VerifyTestMain(m)
}

func TestClient_UsesHTTPSProxy(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(answering(200, "application/json", goodPage))
	defer srv.Close()
	asked := make(chan string, 1)
	go func() {
		conn, err := proxy.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		asked <- req.Method + " " + req.Host
		up, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			return
		}
		defer func() { _ = up.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(up, conn); _ = up.Close() }()
		_, _ = io.Copy(conn, up)
	}()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	c, err := apiclient.New(apiclient.Options{BaseURL: "https://example.com:8443", APIKey: func() (string, error) {
		return "flk_x", nil
	},
		TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}})
	storetest.Must(t, err)
	defer c.CloseIdleConnections()
	_, err = c.ListEndpoints(t.Context(), account.EndpointFilter{})
	storetest.Must(t, err)
	storetest.Equal(t, "proxy was asked", <-asked, "CONNECT example.com:8443")
}

// serve starts a TLS server and a client that trusts it.
func serve(t *testing.T, h http.Handler, adjust ...func(*apiclient.Options)) *apiclient.Client {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.CloseClientConnections)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	opt := apiclient.Options{BaseURL: srv.URL, APIKey: func() (string, error) {
		return "flk_test\n", nil
	}, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}
	for _, change := range adjust {
		change(&opt)
	}
	c, err := apiclient.New(opt)
	storetest.Must(t, err)
	t.Cleanup(func() { c.CloseIdleConnections(); srv.Close() })
	return c
}

// newAPIClient returns a client of the real API on a real store, with the rights of an operator.
func newAPIClient(t *testing.T, adjust ...func(*apiserver.Options)) (*storetest.Fixture, *apiclient.Client) {
	t.Helper()
	return newAPIClientOf(t, []account.Scope{account.ScopeOperator, account.ScopeRead}, adjust...)
}

// newAPIClientOf returns a client whose key has the scopes.
func newAPIClientOf(
	t *testing.T, scopes []account.Scope, adjust ...func(*apiserver.Options),
) (*storetest.Fixture, *apiclient.Client) {
	t.Helper()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), opt)
	})
	_, secret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", scopes, nil)
	storetest.Must(t, err)
	opt := apiserver.Options{Store: f.Store}
	opt.BaseURL, opt.Logger = "https://known.by.another.name:1", slog.New(slog.DiscardHandler)
	opt.MatchSelectors = func([]string) (func(*account.Endpoint) bool, error) {
		return func(*account.Endpoint) bool { return true }, nil
	}
	for _, change := range adjust {
		change(&opt)
	}
	return f, serve(t, apiserver.New(opt), func(o *apiclient.Options) {
		o.APIKey = func() (string, error) {
			return secret, nil
		}
	})
}

func TestClient_ListsAndWatches(t *testing.T) {
	t.Parallel()
	f, c := newAPIClient(t)
	session := f.Session()
	for i := range 5 {
		f.Bind(session, fmt.Sprintf("http://e%d.demo", i))
	}
	filter := account.EndpointFilter{Bindings: []string{account.BindingKubernetes}}
	list, err := c.ListEndpoints(t.Context(), filter)
	storetest.Must(t, err)
	storetest.Equal(t, "endpoints", len(list.Endpoints), 5)
	storetest.Equal(t, "version", list.Version, f.List().Version)
	storetest.Equal(t, "account and store", list.AccountID+list.StoreID, f.AccountID+f.Store.StoreID())
	one, err := c.Endpoint(t.Context(), list.Endpoints[0].ID)
	storetest.Must(t, err)
	storetest.Equal(t, "one", one.URL, list.Endpoints[0].URL)
	byURL, err := c.ListEndpoints(t.Context(), account.EndpointFilter{URL: "http://e3.demo"})
	storetest.Must(t, err)
	storetest.Equal(t, "by url", byURL.Endpoints[0].URL, "http://e3.demo")

	w, err := c.WatchEndpoints(t.Context(), filter, list.Version)
	storetest.Must(t, err)
	f.Bind(session, "http://new.demo")
	e, err := w.Next()
	storetest.Must(t, err)
	storetest.Equal(t, "event", string(e.Type)+e.Endpoint.URL, "ADDEDhttp://new.demo")
	storetest.Equal(t, "newer", e.ResourceVersion.Seq > list.Version.Seq, true)
	w.Close()
	if _, err := w.Next(); err == nil {
		t.Error("a closed watch goes on")
	}
	_, err = c.WatchEndpoints(t.Context(), filter, account.ResourceVersion{Epoch: 1, Seq: 1})
	storetest.MustCode(t, err, account.CodeGone)
	ctx, cancel := context.WithCancel(t.Context())
	w, err = c.WatchEndpoints(ctx, filter, e.ResourceVersion)
	storetest.Must(t, err)
	cancel()
	_, err = w.Next()
	storetest.MustCode(t, err, account.CodeUnreachable)
}

func TestClient_OperatorsAndSessions(t *testing.T) {
	t.Parallel()
	f, c := newAPIClient(t)
	o := account.Operator{Description: "d", ClusterUID: "u", EnabledFeatures: []string{account.FeatureBindings},
		Deployment: account.OperatorDeployment{Name: "n", Namespace: "ns", Version: "1", ClusterName: "c"},
		Binding: &account.OperatorBinding{EndpointSelectors: []string{`ep.name == "a, 'b'` + "\n"},
			IngressEndpoint: "x"}}
	made, created, err := c.UpsertOperator(t.Context(), o)
	storetest.Must(t, err)
	storetest.Equal(t, "created", created, true)
	storetest.Equal(t, "selector", made.Binding.EndpointSelectors[0], o.Binding.EndpointSelectors[0])
	again, created, err := c.UpsertOperator(t.Context(), o)
	storetest.Must(t, err)
	storetest.Equal(t, "again", fmt.Sprint(created, again.ID == made.ID), "false true")
	path := "/kubernetes_operators/" + made.ID
	raw, err := c.Object(t.Context(), path)
	storetest.Must(t, err)
	var read account.Operator
	storetest.Must(t, json.Unmarshal(raw, &read))
	storetest.Equal(t, "deployment", read.Deployment, o.Deployment)
	all, err := c.ListObjects(t.Context(), "/kubernetes_operators", "operators", nil)
	storetest.Must(t, err)
	storetest.Equal(t, "operators", len(all), 1)
	storetest.Must(t, c.DeleteObject(t.Context(), path))
	storetest.MustCode(t, c.DeleteObject(t.Context(), path), account.CodeNotFound)
	o.Description = strings.Repeat("x", 300)
	_, _, err = c.UpsertOperator(t.Context(), o)
	storetest.MustCode(t, err, account.CodeInvalid)
	storetest.Equal(t, "field", account.FieldsOf(err)[0].Field, "description")
	session := f.Session()
	sessions, err := c.ListObjects(t.Context(), "/tunnel_sessions", "tunnel_sessions", nil)
	storetest.Must(t, err)
	storetest.Equal(t, "sessions", len(sessions), 1)
	var one account.TunnelSession
	raw, err = c.Object(t.Context(), "/tunnel_sessions/"+session)
	storetest.Must(t, err)
	storetest.Must(t, json.Unmarshal(raw, &one))
	storetest.Equal(t, "session", one.ID, session)
	_, err = c.Endpoint(t.Context(), "a/../b?c")
	storetest.MustCode(t, err, account.CodeNotFound)
}

func TestList_ReadsEveryPage(t *testing.T) {
	t.Parallel()
	f, c := newAPIClient(t)
	o := account.Operator{Deployment: account.OperatorDeployment{Name: "n", Namespace: "ns"}}
	for i := range 3 {
		o.ClusterUID = fmt.Sprint(i)
		_, _, err := c.UpsertOperator(t.Context(), o)
		storetest.Must(t, err)
	}
	session := f.Session()
	for i := range 5 {
		f.Clock.Step(time.Millisecond)
		f.Bind(session, fmt.Sprintf("http://e%d.demo", i))
	}
	small := smallPages(t, f)
	list, err := small.ListEndpoints(t.Context(), account.EndpointFilter{})
	storetest.Must(t, err)
	storetest.Equal(t, "endpoints", len(list.Endpoints), 5)
}

// smallPages is a client of an API whose pages hold two endpoints, whatever was asked for.
func smallPages(t *testing.T, f *storetest.Fixture) *apiclient.Client {
	_, secret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, nil)
	storetest.Must(t, err)
	h := apiserver.New(apiserver.Options{Store: f.Store, SharedOptions: httpkit.SharedOptions{
		BaseURL: "https://elsewhere", Logger: slog.New(slog.DiscardHandler)}})
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Set("limit", "2")
		r.URL.RawQuery = q.Encode()
		h.ServeHTTP(w, r)
	}), func(o *apiclient.Options) { o.APIKey = func() (string, error) { return secret, nil } })
}

func TestClient_SetsHeaders(t *testing.T) {
	t.Parallel()
	keys := []string{"flk_one", " flk_two\n"}
	var calls atomic.Int32
	var got atomic.Value
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Clone())
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x"}`)
	}), func(o *apiclient.Options) {
		o.VersionHeader, o.UserAgent = "Other-Version", "fairlead-operator/1"
		o.APIKey = func() (string, error) { return keys[calls.Add(1)-1], nil }
	})
	for _, want := range []string{"Bearer flk_one", "Bearer flk_two"} {
		_, err := c.Endpoint(t.Context(), "x")
		storetest.Must(t, err)
		h := got.Load().(http.Header)
		storetest.Equal(t, "headers",
			fmt.Sprint(h.Get("Authorization"), h.Get("Other-Version"), h.Get("Service-Version"),
				h.Get("User-Agent"), h.Get("Accept-Encoding")),
			fmt.Sprint(want, "2", "", "fairlead-operator/1", ""))
	}
}

func TestClient_RefusesInvalidKeysAndAddresses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", " \n", "flk_a b", "flk_a\nflk_b", "flk_aä"} {
		c := serve(t, http.NotFoundHandler(), func(o *apiclient.Options) {
			o.APIKey = func() (string, error) {
				return bad, nil
			}
		})
		_, err := c.ListEndpoints(t.Context(), account.EndpointFilter{})
		storetest.MustCode(t, err, account.CodeInvalid)
		if strings.Contains(err.Error(), "flk_a") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
	broken := errors.New("no such file")
	c := serve(t, http.NotFoundHandler(), func(o *apiclient.Options) {
		o.APIKey = func() (string, error) {
			return "", broken
		}
	})
	if _, err := c.ListEndpoints(t.Context(), account.EndpointFilter{}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	for _, bad := range []string{"", "http://x", "https://x/api", "https://x:0"} {
		_, err := apiclient.New(apiclient.Options{BaseURL: bad, APIKey: func() (string, error) { return "", nil }})
		storetest.MustCode(t, err, account.CodeInvalid)
	}
	if _, err := apiclient.New(apiclient.Options{BaseURL: "https://x"}); err == nil {
		t.Error("a client without a key")
	}
}

func TestClient_UnreachableServers(t *testing.T) {
	t.Parallel()
	c := serve(t, http.NotFoundHandler(), func(o *apiclient.Options) { o.TLS = nil })
	_, err := c.ListEndpoints(t.Context(), account.EndpointFilter{})
	storetest.MustCode(t, err, account.CodeUnreachable)
	if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v does not name the certificate", err)
	}
	absent, err := apiclient.New(apiclient.Options{BaseURL: "https://127.0.0.1:1", APIKey: func() (string, error) {
		return "flk_x", nil
	}})
	storetest.Must(t, err)
	_, err = absent.WatchEndpoints(t.Context(), account.EndpointFilter{}, account.ResourceVersion{Epoch: 1})
	storetest.MustCode(t, err, account.CodeUnreachable)
	if strings.Contains(err.Error(), "flk_x") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
}
