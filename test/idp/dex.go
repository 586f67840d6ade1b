// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/backchannel"
	"github.com/dexidp/dex/server/oauth2"
	"github.com/dexidp/dex/server/session"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/go-jose/go-jose/v4"
)

// dex is Dex with its own passwords. Its sessions are shared by all clients.
type dex struct {
	*server.Server
	base, issuer string
	store        storage.Storage
	notifier     *backchannel.Notifier
}

const tokenLife = time.Hour

func newDex(ctx context.Context, base string, log *slog.Logger) (*dex, error) {
	d := &dex{base: base, issuer: base + "/dex", store: memory.New(log)}
	if err := d.store.CreateConnector(ctx, storage.Connector{ID: "local", Type: "local", Name: "Email"}); err != nil {
		return nil, err
	}
	local := signer.LocalConfig{KeysRotationPeriod: "720h"}
	signs, err := local.Open(ctx, d.store, tokenLife, time.Now, log)
	if err != nil {
		return nil, err
	}
	issuer, err := url.Parse(d.issuer)
	if err != nil {
		return nil, err
	}
	d.notifier = &backchannel.Notifier{Storage: d.store, Signer: signs, IssuerURL: oauth2.IssuerURL{URL: *issuer},
		Logger: log}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	d.Server, err = server.NewServer(ctx, server.Config{
		Issuer: d.issuer, Storage: d.store, SupportedResponseTypes: []string{"code"}, SkipApprovalScreen: true,
		Logger: log,
		Signer: signs, IDTokensValidFor: tokenLife,
		SessionConfig: &session.Config{CookieName: "dex_session", CookieEncryptionKey: key, AbsoluteLifetime: time.Hour,
			ValidIfNotUsedFor:          time.Hour,
			RememberMeCheckedByDefault: true, SSOSharedWithDefault: "all"},
	})
	return d, err
}

func (d *dex) describe() description {
	return description{Kind: "dex", URL: d.base, Issuer: d.issuer}
}

func (d *dex) putUser(ctx context.Context, u user) error {
	hash, err := u.passwordHash()
	if err != nil {
		return err
	}
	verified := !u.Unverified
	p := storage.Password{Email: u.Email, Hash: hash, Username: u.Username, PreferredUsername: u.Username, Name: u.Name,
		UserID:        "user-" + u.Username,
		EmailVerified: &verified, Groups: u.Groups}
	err = d.store.CreatePassword(ctx, p)
	if errors.Is(err, storage.ErrAlreadyExists) {
		return d.store.UpdatePassword(ctx, u.Email, func(storage.Password) (storage.Password, error) { return p, nil })
	}
	return err
}

func (d *dex) putClient(ctx context.Context, c client) error {
	s := storage.Client{ID: c.ID, Secret: c.Secret, Name: c.ID, RedirectURIs: c.RedirectURIs,
		PostLogoutRedirectURIs: c.PostLogoutRedirectURIs, BackchannelLogoutURI: c.BackChannelLogoutURI}
	err := d.store.CreateClient(ctx, s)
	if errors.Is(err, storage.ErrAlreadyExists) {
		return d.store.UpdateClient(ctx, c.ID, func(storage.Client) (storage.Client, error) { return s, nil })
	}
	return err
}

func (d *dex) rotate(ctx context.Context, forget bool) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	id := rand.Text()
	return d.store.UpdateKeys(ctx, func(k storage.Keys) (storage.Keys, error) {
		k.VerificationKeys = append(slices.Clone(k.VerificationKeys),
			storage.VerificationKey{PublicKey: k.SigningKeyPub, Expiry: time.Now().Add(tokenLife)})
		if forget {
			k.VerificationKeys = nil
		}
		k.SigningKey = &jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.RS256), Use: "sig"}
		k.SigningKeyPub = &jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: string(jose.RS256), Use: "sig"}
		return k, nil
	})
}

// endSessions is what an administrator of Dex does through its gRPC API.
func (d *dex) endSessions(ctx context.Context, email string) (int, error) {
	p, err := d.store.GetPassword(ctx, email)
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", email, err)
	}
	sessions, err := d.store.ListAuthSessions(ctx)
	ended := 0
	for _, s := range sessions {
		if s.UserID != p.UserID {
			continue
		}
		d.notifier.Notify(ctx, &s)
		err = errors.Join(err, d.store.DeleteAuthSession(ctx, s.ID))
		ended++
	}
	return ended, err
}
