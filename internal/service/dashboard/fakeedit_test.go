// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// The part of the fake that keeps what people make and change. Each change takes a second.

// testSealer is a Sealer that hides a text, and the owner that Unseal asks for.
type testSealer struct{}

func (testSealer) Seal(text, owner string) []byte {
	return []byte(hex.EncodeToString([]byte(owner)) + "|" + hex.EncodeToString([]byte(text)))
}

func (testSealer) Unseal(sealed []byte, owner string) (string, error) {
	text, ok := strings.CutPrefix(string(sealed), hex.EncodeToString([]byte(owner))+"|")
	if !ok {
		return "", errors.New("sealed for another")
	}
	plain, err := hex.DecodeString(text)
	return string(plain), err
}

// record notes a change by a caller.
func (f *fake) record(by account.Caller, what account.AuditType, id string) time.Time {
	f.now = f.now.Add(time.Second)
	e := account.AuditEvent{ID: f.id(account.PrefixEvent, 0, 5000+len(f.events)), Type: what, OccurredAt: f.now,
		Object: &account.Ref{ID: id}, Principal: &account.Ref{ID: by.PrincipalID}}
	f.events, f.owner[e.ID] = append(f.events, e), by.AccountID
	return f.now
}

func (f *fake) CreateEndpoint(
	_ context.Context, e account.Endpoint, _ account.PolicyFacts,
) (*account.Endpoint, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	for _, other := range f.endpoints {
		if other.URL == e.URL && f.owner[other.ID] == e.AccountID {
			return nil, account.Errorf(account.CodeURLTaken, "%s is that of cloud endpoint %s", e.URL, other.ID)
		}
	}
	e.ID, e.Status, e.Type = f.id(account.PrefixEndpoint, 0, 5000+len(f.endpoints)), "online", account.TypeCloud
	by := account.Caller{AccountID: e.AccountID, PrincipalID: e.Principal.ID}
	e.CreatedAt = f.record(by, account.AuditEndpointCreated, e.ID)
	e.UpdatedAt = e.CreatedAt
	f.endpoints, f.owner[e.ID] = append(f.endpoints, e), e.AccountID
	return &e, nil
}

func (f *fake) PatchEndpoint(
	_ context.Context, by account.Caller, id string, p account.EndpointPatch, _ account.PolicyFacts,
) (*account.Endpoint, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	e, err := find(f, f.endpoints, endpointID, by.AccountID, id)
	if err == nil {
		err = account.CheckUnchanged(e.URL, e.UpdatedAt, p.ExpectedUpdatedAt)
	}
	if err != nil {
		return nil, err
	}
	after, err := p.Apply(*e)
	if err != nil {
		return nil, err
	}
	after.UpdatedAt = f.record(by, account.AuditEndpointUpdated, id)
	f.endpoints[slices.IndexFunc(f.endpoints, func(o account.Endpoint) bool { return o.ID == id })] = after
	return &after, nil
}

func (f *fake) DeleteEndpoint(_ context.Context, by account.Caller, id string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if _, err := find(f, f.endpoints, endpointID, by.AccountID, id); err != nil {
		return err
	}
	f.record(by, account.AuditEndpointDeleted, id)
	f.endpoints = slices.DeleteFunc(f.endpoints, func(o account.Endpoint) bool { return o.ID == id })
	return nil
}

func (f *fake) CreateBackend(_ context.Context, by account.Caller, b account.Backend) (*account.Backend, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	b.ID = f.id(b.Kind.IDPrefix(), 0, 5000+len(f.backends))
	b.CreatedAt = f.record(by, account.AuditBackendCreated, b.ID)
	b.UpdatedAt = b.CreatedAt
	f.backends, f.owner[b.ID] = append(f.backends, b), by.AccountID
	return &b, nil
}

func (f *fake) PatchBackend(
	_ context.Context, by account.Caller, _ account.BackendKind, id string, p account.BackendPatch,
) (*account.Backend, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	b, err := find(f, f.backends, backendID, by.AccountID, id)
	if err == nil {
		err = account.CheckUnchanged("backend "+id, b.UpdatedAt, p.ExpectedUpdatedAt)
	}
	if err != nil {
		return nil, err
	}
	after, err := p.Apply(*b, time.Time{})
	if err != nil {
		return nil, err
	}
	after.UpdatedAt = f.record(by, account.AuditBackendUpdated, id)
	f.backends[slices.IndexFunc(f.backends, func(o account.Backend) bool { return o.ID == id })] = after
	return &after, nil
}

func (f *fake) DeleteBackend(_ context.Context, by account.Caller, _ account.BackendKind, id string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if _, err := find(f, f.backends, backendID, by.AccountID, id); err != nil {
		return err
	}
	for _, e := range f.endpoints {
		if e.BackendID == id {
			return account.Errorf(account.CodeInUse, "backend %s is used by endpoint %s", id, e.ID)
		}
	}
	f.record(by, account.AuditBackendDeleted, id)
	f.backends = slices.DeleteFunc(f.backends, func(o account.Backend) bool { return o.ID == id })
	return nil
}

// otherFailures is a fake with other failed logins.
type otherFailures struct {
	*fake
	answer func(limit int) ([]traffic.LoginFailure, traffic.Coverage)
}

func (o otherFailures) LoginFailures(
	_ context.Context, _ string, limit int,
) ([]traffic.LoginFailure, traffic.Coverage) {
	return o.answer(limit)
}

func (f *fake) LoginFailures(
	_ context.Context, accountID string, limit int,
) ([]traffic.LoginFailure, traffic.Coverage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	coverage := traffic.Coverage{Since: ago(f, 5*time.Hour)}
	if accountID != mine {
		return nil, coverage
	}
	return f.failures[:min(limit, len(f.failures))], coverage
}

// addLoginFailures adds a login that the provider refused, and one that broke off.
func (f *fake) addLoginFailures() {
	f.failures = []traffic.LoginFailure{
		{At: ago(f, 4*time.Minute), Count: 3, EndpointID: f.endpoints[4].ID, EndpointURL: "https://app.example.com",
			Provider: "Google", Step: "callback", Client: netip.MustParseAddr("203.0.113.9"),
			Reason: "access_denied: The user did not consent",
			Shown:  "The identity provider refused the login."},
		{At: ago(f, 3*time.Hour), Count: 1, EndpointURL: "https://reports.example.com", Provider: "GitHub",
			Step: "finish", Person: "ann@example.com (1078)", Reason: "The provider did not answer within 10 s"},
	}
}
