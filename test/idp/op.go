// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// exampleOP is zitadel's example provider with our users and clients. It keeps no sessions: it
// always asks.
type exampleOP struct {
	http.Handler
	issuer string
	store  *opStorage
}

func newOP(base string, log *slog.Logger) *exampleOP {
	users := &opUsers{users: map[string]storage.User{}, groups: map[string][]string{}}
	store := &opStorage{Storage: storage.NewStorageWithClients(users, map[string]*storage.Client{}), users: users,
		clients: map[string]opClient{}}
	return &exampleOP{Handler: exampleop.SetupServer(base, store, log, false), issuer: base, store: store}
}

func (p *exampleOP) describe() description {
	return description{Kind: "op", URL: p.issuer, Issuer: p.issuer}
}

func (p *exampleOP) putUser(_ context.Context, u user) error {
	p.store.users.put(u)
	return nil
}

func (p *exampleOP) putClient(_ context.Context, c client) error {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.clients[c.ID] = opClient{Client: storage.WebClient(c.ID, c.Secret, c.RedirectURIs...), secret: c.Secret}
	return nil
}

func (p *exampleOP) rotate(context.Context, bool) error { return errors.ErrUnsupported }

func (p *exampleOP) endSessions(context.Context, string) (int, error) {
	return 0, errors.ErrUnsupported
}

// opStorage is the example's, with clients that can be added while it runs.
type opStorage struct {
	*storage.Storage
	users *opUsers

	mu      sync.Mutex
	clients map[string]opClient
}

type opClient struct {
	*storage.Client
	secret string
}

func (s *opStorage) client(id string) (opClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clients[id]
	if !ok {
		return c, errors.New("client not found")
	}
	return c, nil
}

func (s *opStorage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	c, err := s.client(id)
	if err != nil {
		return nil, err
	}
	return c.Client, nil
}

func (s *opStorage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	c, err := s.client(id)
	if err == nil && c.secret != secret {
		err = errors.New("invalid secret")
	}
	return err
}

func (s *opStorage) SetUserinfoFromRequest(
	ctx context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string,
) error {
	if err := s.Storage.SetUserinfoFromRequest(ctx, info, r, scopes); err != nil {
		return err
	}
	s.users.addGroups(info, r.GetSubject())
	return nil
}

func (s *opStorage) SetUserinfoFromToken(
	ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string,
) error {
	if err := s.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin); err != nil {
		return err
	}
	s.users.addGroups(info, subject)
	return nil
}

// opUsers are the example's users, by id.
type opUsers struct {
	mu     sync.Mutex
	users  map[string]storage.User
	groups map[string][]string
}

func (u *opUsers) put(n user) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := "op-" + n.Username
	first, last, _ := strings.Cut(n.Name, " ")
	u.users[id] = storage.User{ID: id, Username: n.Email, Password: n.Password, FirstName: first, LastName: last,
		Email: n.Email, EmailVerified: !n.Unverified}
	u.groups[id] = n.Groups
}

func (u *opUsers) addGroups(info *oidc.UserInfo, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	info.AppendClaims("groups", u.groups[id])
}

func (u *opUsers) GetUserByID(id string) *storage.User {
	u.mu.Lock()
	defer u.mu.Unlock()
	if found, ok := u.users[id]; ok {
		return &found
	}
	return nil
}

func (u *opUsers) GetUserByUsername(name string) *storage.User {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, found := range u.users {
		if found.Username == name {
			return &found
		}
	}
	return nil
}

func (u *opUsers) ExampleClientID() string { return storage.ServiceUserID }
