// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"

	"github.com/crewjam/saml"
	"github.com/crewjam/saml/samlidp"
	dsig "github.com/russellhaering/goxmldsig"
)

const (
	persistent = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
	emailName  = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
)

// samlIDP is crewjam's identity provider, with SHA-256, ForceAuthn and the name formats that it
// leaves out. Its form of a login initiated by the provider is that of /login.
type samlIDP struct {
	*samlidp.Server
	base  string
	store *samlStore
}

// samlStore is the library's, whose List takes no lock.
type samlStore struct {
	samlidp.MemoryStore
	mu sync.RWMutex
}

func (s *samlStore) Put(key string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.MemoryStore.Put(key, value)
}

func (s *samlStore) Delete(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.MemoryStore.Delete(key)
}

func (s *samlStore) List(prefix string) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.MemoryStore.List(prefix)
}

func newSAML(base string, lg *slog.Logger) (*samlIDP, error) {
	at, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: at.Hostname()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &samlIDP{base: base, store: &samlStore{}}
	p.Server, err = samlidp.New(samlidp.Options{URL: *at, Key: key, Certificate: certificate, Store: p.store,
		Logger: log.New(logWriter{lg}, "", 0)})
	if err != nil {
		return nil, err
	}
	p.IDP.SignatureMethod = dsig.RSASHA256SignatureMethod
	p.IDP.LoginURL = p.IDP.SSOURL // where the form goes, with the request in it
	p.IDP.SessionProvider = p
	return p, nil
}

type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func (p *samlIDP) describe() description {
	return description{Kind: "saml", URL: p.base, Metadata: p.IDP.MetadataURL.String()}
}

// GetSession asks for the password in spite of a session when the request has ForceAuthn, and names
// the user in the requested format.
func (p *samlIDP) GetSession(w http.ResponseWriter, r *http.Request, q *saml.IdpAuthnRequest) *saml.Session {
	if q.Request.ForceAuthn != nil && *q.Request.ForceAuthn {
		r = r.Clone(r.Context())
		r.Header.Del("Cookie")
	}
	s := p.Server.GetSession(w, r, q)
	if s == nil {
		return nil
	}
	s.NameIDFormat, s.NameID = persistent, "saml-"+s.UserName
	if f := q.Request.NameIDPolicy; f != nil && f.Format != nil && *f.Format == emailName {
		s.NameIDFormat, s.NameID = emailName, s.UserEmail
	}
	return s
}

func (p *samlIDP) putUser(_ context.Context, u user) error {
	hash, err := u.passwordHash()
	if err != nil {
		return err
	}
	return p.store.Put("/users/"+u.Email, samlidp.User{Name: u.Email, HashedPassword: hash, Groups: u.Groups,
		Email: u.Email, CommonName: u.Name})
}

func (p *samlIDP) putClient(context.Context, client) error { return errors.ErrUnsupported }

func (p *samlIDP) rotate(context.Context, bool) error { return errors.ErrUnsupported }

func (p *samlIDP) endSessions(_ context.Context, email string) (int, error) {
	ids, err := p.store.List("/sessions/")
	if err != nil {
		return 0, err
	}
	ended := 0
	for _, id := range ids {
		var s saml.Session
		if err := p.store.Get("/sessions/"+id, &s); err != nil || s.UserEmail != email {
			continue
		}
		if err := p.store.Delete("/sessions/" + id); err != nil {
			return ended, err
		}
		ended++
	}
	return ended, nil
}

// putServiceProvider takes metadata, and returns the service provider's entity id.
func (p *samlIDP) putServiceProvider(ctx context.Context, name string, metadata io.Reader) error {
	return p.request(ctx, "/services/"+name, metadata)
}

// putShortcut makes /login/NAME begin a login at the service provider.
func (p *samlIDP) putShortcut(name, entity string, relayState *string) error {
	return p.store.Put("/shortcuts/"+name,
		samlidp.Shortcut{Name: name, ServiceProviderID: entity, RelayState: relayState})
}

// request puts something by the provider's own API.
func (p *samlIDP) request(ctx context.Context, path string, body io.Reader) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, p.base+path, body)
	if err != nil {
		return err
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	if w.Code != http.StatusNoContent {
		return fmt.Errorf("PUT %s: %d %s", path, w.Code, w.Body)
	}
	return nil
}
