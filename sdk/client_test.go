// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func client(t *testing.T, s *servicetest.Server, key string) *sdk.Client {
	t.Helper()
	c, err := sdk.NewClient(sdk.WithServer(s.Addrs.Service.String()), sdk.WithCAFingerprint(s.Addrs.CAFingerprint),
		sdk.WithAPIKey(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// must returns the value of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// all returns what a list yields.
func all[T any](t *testing.T, list iter.Seq2[*T, error]) (objects []*T) {
	t.Helper()
	for o, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

// checkKind creates, reads, changes, lists and deletes an object of a kind.
func checkKind[T, F any](t *testing.T, c sdk.Collection[T, F], id func(*T) sdk.Object, create, update F) {
	t.Helper()
	ctx := servicetest.Context(t)
	made := id(must[*T](t)(c.Create(ctx, create)))
	changed := id(must[*T](t)(c.Update(ctx, made.ID, update)))
	read := id(must[*T](t)(c.Get(ctx, made.ID)))
	if made.ID == "" || changed.ID != made.ID || read.Description != "changed" || read.CreatedAt.IsZero() {
		t.Errorf("%T: made %+v, changed %+v, read %+v", create, made, changed, read)
	}
	listed := false
	for _, o := range all(t, c.List(ctx, nil)) {
		listed = listed || id(o).ID == made.ID
	}
	if !listed {
		t.Errorf("%T: the list has no %s", create, made.ID)
	}
	if err := c.Delete(ctx, made.ID); err != nil {
		t.Error(err)
	}
	var gone *sdk.Error
	if _, err := c.Get(ctx, made.ID); !errors.As(err, &gone) || gone.Code != sdk.CodeNotFound ||
		gone.Status != http.StatusNotFound {
		t.Errorf("%T: reading what was deleted: %v", create, err)
	}
}

func TestClient_KeepsEveryKind(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	c := client(t, s, s.APIKey)
	changed := sdk.ObjectFields{Description: new("changed")}
	ctx := servicetest.Context(t)
	answer := must[*sdk.HTTPResponseBackend](t)(c.HTTPResponseBackends.Create(ctx,
		sdk.HTTPResponseBackendFields{StatusCode: 418, Body: new("teapot")}))
	checkKind(t, c.Endpoints.Collection, func(e *sdk.Endpoint) sdk.Object { return e.Object },
		sdk.EndpointFields{URL: "http://cloud.demo", BackendID: &answer.ID}, sdk.EndpointFields{ObjectFields: changed})
	checkKind(t, c.FailoverBackends, func(b *sdk.FailoverBackend) sdk.Object { return b.Object },
		sdk.FailoverBackendFields{Backends: []string{answer.ID}}, sdk.FailoverBackendFields{ObjectFields: changed})
	checkKind(t, c.WeightedBackends, func(b *sdk.WeightedBackend) sdk.Object { return b.Object },
		sdk.WeightedBackendFields{Backends: map[string]int{answer.ID: 1}},
		sdk.WeightedBackendFields{ObjectFields: changed})
	checkKind(t, c.TunnelGroupBackends, func(b *sdk.TunnelGroupBackend) sdk.Object { return b.Object },
		sdk.TunnelGroupBackendFields{Labels: map[string]string{"app": "api"}},
		sdk.TunnelGroupBackendFields{ObjectFields: changed})
	checkKind(t, c.StaticBackends, func(b *sdk.StaticBackend) sdk.Object { return b.Object },
		sdk.StaticBackendFields{Address: "example.com:80"}, sdk.StaticBackendFields{ObjectFields: changed})
	checkKind(t, c.HTTPResponseBackends, func(b *sdk.HTTPResponseBackend) sdk.Object { return b.Object },
		sdk.HTTPResponseBackendFields{}, sdk.HTTPResponseBackendFields{ObjectFields: changed})
	checkKind(t, c.Authtokens, func(a *sdk.Authtoken) sdk.Object { return a.Object },
		sdk.AuthtokenFields{ACL: []string{"bind:http://*.demo"}}, sdk.AuthtokenFields{ObjectFields: changed})
	checkKind(t, c.APIKeys, func(k *sdk.APIKey) sdk.Object { return k.Object },
		sdk.APIKeyFields{Scopes: []string{"read"}}, sdk.APIKeyFields{ObjectFields: changed})
	if left := all(t, c.Users.List(ctx, nil)); len(left) != 0 {
		t.Errorf("users: %+v", left)
	}
	if left := all(t, c.AppSessions.List(ctx, nil)); len(left) != 0 {
		t.Errorf("sessions of people: %+v", left)
	}
	if left := all(t, c.Operators.List(ctx, nil)); len(left) != 0 {
		t.Errorf("operators: %+v", left)
	}
}

// TestClient_NamesEveryMistakeOfSettings: one run is enough to mend a config file.
func TestClient_NamesEveryMistakeOfSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	const text = "colour: red\nserver_url: ftp://x\nauthtoken: flk_a\nca_sha256: zz\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sdk.NewClient(sdk.WithConfigFile(path), sdk.WithAPIKey("flk_a"))
	for _, want := range []string{`unknown key "colour"`, "must be https", "is an API key", `ca-sha256 "zz"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in %v", want, err)
		}
	}
}

func TestClient_ReturnsRefusals(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ctx := servicetest.Context(t)
	var refused *sdk.Error
	_, err := client(t, s, s.APIKey).Endpoints.Create(ctx, sdk.EndpointFields{URL: "ftp://a.demo"})
	if !errors.As(err, &refused) || refused.Code != sdk.CodeInvalid || refused.Fields[0].Field != "url" {
		t.Errorf("an invalid URL: %#v", err)
	}
	for _, err := range client(t, s, "flk_unknown").Endpoints.List(ctx, nil) {
		if !errors.As(err, &refused) || refused.Code != sdk.CodeUnknownCredential {
			t.Errorf("an unknown key: %#v", err)
		}
	}
	for _, err := range client(t, s, s.APIKey).Endpoints.Watch(ctx, sdk.Filter{"owner_cluster": "x"}) {
		if !errors.As(err, &refused) || refused.Code != sdk.CodeInvalid {
			t.Errorf("a filter that watches do not have: %#v", err)
		}
	}
	for _, err := range client(t, s, "flk_unknown").Endpoints.Watch(ctx, nil) {
		if !errors.As(err, &refused) || refused.Code != sdk.CodeUnknownCredential {
			t.Errorf("watching with an unknown key: %#v", err)
		}
	}
}

func TestTunnelSessions_StopEndsListener(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln, c := listen(t, s, "http://hello.demo"), client(t, s, s.APIKey)
	ctx := servicetest.Context(t)
	sessions := all(t, c.TunnelSessions.List(ctx, nil))
	if len(sessions) != 1 {
		t.Fatalf("sessions: %+v", sessions)
	}
	if err := c.TunnelSessions.Stop(ctx, sessions[0].ID); err != nil {
		t.Fatal(err)
	}
	var refused *sdk.Error
	if _, err := ln.Accept(); !errors.As(err, &refused) || refused.Reason != sdk.ReasonStopped {
		t.Errorf("Accept returned %v", err)
	}
}

// TestEndpoints_WatchOutlivesRestart holds that a watch yields what there is, what changes, and,
// after a restart of the service, what has changed meanwhile.
func TestEndpoints_WatchOutlivesRestart(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ctx, cancel := context.WithCancel(servicetest.Context(t))
	listen(t, s, "http://first.demo")
	events := make(chan sdk.EndpointEvent, 100)
	ended := make(chan error, 1)
	c := client(t, s, s.APIKey)
	go func() {
		defer close(ended)
		for e, err := range c.Endpoints.Watch(ctx, sdk.Filter{"binding": sdk.BindingKubernetes}) {
			if err != nil {
				ended <- err
				return
			}
			events <- e
		}
	}()
	next := func(kind sdk.EventType, url string) {
		t.Helper()
		for {
			e := servicetest.Receive(t, events, string(kind)+" "+url)
			if e.Type == kind && (url == "" || e.Endpoint.URL == url) {
				return
			}
		}
	}
	next(sdk.EventAdded, "http://first.demo")
	next(sdk.EventSynced, "")
	made := must[*sdk.Endpoint](t)(c.Endpoints.Create(ctx, sdk.EndpointFields{URL: "http://second.demo"}))
	next(sdk.EventAdded, "http://second.demo")
	must[*sdk.Endpoint](t)(c.Endpoints.Update(ctx, made.ID,
		sdk.EndpointFields{ObjectFields: sdk.ObjectFields{Metadata: new("x")}}))
	next(sdk.EventModified, "http://second.demo")
	if err := s.StopAndWait(); err != nil {
		t.Fatal(err)
	}
	servicetest.Start(t, func(o *service.Options) {
		o.Addr, o.DataDir = s.Addrs.Service.String(), s.Options.DataDir
	})
	servicetest.Eventually(t, "a deletion after the restart", func() bool {
		return c.Endpoints.Delete(ctx, made.ID) == nil
	})
	next(sdk.EventDeleted, "http://second.demo")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
