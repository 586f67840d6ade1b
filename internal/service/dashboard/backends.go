// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func backendKindOf(id string) account.BackendKind {
	prefix, _, _ := strings.Cut(id, "-")
	for _, kind := range account.BackendKinds() {
		if kind.IDPrefix() == prefix {
			return kind
		}
	}
	return ""
}

func kindName(k account.BackendKind) string {
	return map[account.BackendKind]string{
		account.BackendFailover: "Failover", account.BackendTunnelGroup: "Tunnel group",
		account.BackendHTTPResponse: "HTTP response",
		account.BackendStatic:       "Static", account.BackendWeighted: "Weighted",
	}[k]
}

// backendRow is a backend and its active child, "" when that is not known.
type backendRow struct {
	account.Backend
	Active    string
	Elsewhere []replicaChild // replicas with another Active child
}

// backendCommands are examples of commands that create a backend of each kind.
var backendCommands = map[account.BackendKind]string{
	account.BackendFailover:     "fairlead api backends failover create --backend bkdtg-… --backend bkdhr-…",
	account.BackendTunnelGroup:  "fairlead api backends tunnel-group create --label app=api",
	account.BackendHTTPResponse: `fairlead api backends http-response create --status-code 503 --body "back soon"`,
	account.BackendStatic:       "fairlead api backends static create --address api.example.com:443 --tls",
	account.BackendWeighted:     "fairlead api backends weighted create --backend bkdtg-…=95 --backend bkdst-…=5",
}

// Summary returns in a few words what the backend does.
func (b backendRow) Summary() string {
	switch b.Kind {
	case account.BackendFailover:
		return "First that is up of " + count(len(b.Children), "child", "children")
	case account.BackendWeighted:
		return "By weight among " + count(len(b.Weights), "child", "children")
	case account.BackendTunnelGroup:
		return strings.Join(labelList(b.Labels), ", ")
	case account.BackendHTTPResponse:
		if b.Response != nil {
			return fmt.Sprintf("Answers %d %s", b.Response.StatusCode, http.StatusText(b.Response.StatusCode))
		}
	case account.BackendStatic:
		if b.Static != nil && b.Static.TLS {
			return b.Static.Address + ", TLS"
		} else if b.Static != nil {
			return b.Static.Address
		}
	}
	return ""
}

// FailedOver reports whether another child than the first serves.
func (b backendRow) FailedOver() bool {
	return b.Kind == account.BackendFailover && b.Active != "" && len(b.Children) > 0 && b.Active != b.Children[0]
}

type backendsPage struct {
	Kind  account.BackendKind
	Kinds []kindTab
	Rows  []backendRow
	Pager pager
}

// Noun returns what a backend of the kind is called in the middle of a sentence.
func (p backendsPage) Noun() string { return backendNoun(p.Kind) }

// backendNoun returns what a backend of the kind is called in the middle of a sentence.
func backendNoun(kind account.BackendKind) string {
	if kind == account.BackendHTTPResponse {
		return "HTTP response backend"
	}
	return strings.ToLower(kindName(kind)) + " backend"
}

type kindTab struct {
	Kind    account.BackendKind
	Href    string
	Current bool
}

// backends lists the backends of one kind, as the store does.
func (s *server) backends(c *call) error {
	p := backendsPage{Kind: account.BackendFailover}
	for _, kind := range account.BackendKinds() {
		if c.Request.URL.Query().Get("kind") == string(kind) {
			p.Kind = kind
		}
	}
	for _, kind := range account.BackendKinds() {
		p.Kinds = append(p.Kinds, kindTab{kind, Path + "backends?" + url.Values{"kind": {string(kind)}}.Encode(),
			kind == p.Kind})
	}
	found, err := s.opt.Store.ListBackends(c.Context(), c.AccountID(), p.Kind, c.page())
	if err != nil {
		return err
	}
	if p.Rows, err = s.backendRows(c.Context(), c.AccountID(), found.Backends...); err != nil {
		return err
	}
	p.Pager = pagerOf(c, found.Backends, found.More, backendID, url.Values{"kind": {string(p.Kind)}})
	return c.show(http.StatusOK, view{Page: "backends", Title: "Backends", Nav: "backends", Live: "audit", Data: p})
}

type backendChild struct {
	ID      string
	Backend *backendRow // nil when it does not exist
	Weight  int
	Active  bool
	At      []string // replicas with which it serves, and others do with the rest
}

// Order returns the position of the child with index i, from 1.
func (backendChild) Order(i int) int { return i + 1 }

type backendPage struct {
	backendRow
	ChildRows []backendChild
	Headers   []string
	Tunnels   []account.LabelledTunnel
}

// Name returns the description, or the ID without one.
func (b backendRow) Name() string {
	if b.Description != "" {
		return b.Description
	}
	return b.ID
}

func (s *server) backend(c *call) error {
	kind := backendKindOf(c.ID())
	if kind == "" {
		return account.Errorf(account.CodeNotFound, "there is no backend %q", account.Shorten(c.ID()))
	}
	b, err := s.opt.Store.Backend(c.Context(), c.AccountID(), kind, c.ID())
	if err != nil {
		return err
	}
	rows, err := s.backendRows(c.Context(), c.AccountID(), *b)
	if err != nil {
		return err
	}
	p := backendPage{backendRow: rows[0]}
	children := b.Children
	if kind == account.BackendWeighted {
		children = slices.Sorted(maps.Keys(b.Weights))
	}
	for _, id := range children {
		child := backendChild{ID: id, Weight: b.Weights[id], Active: id == p.Active}
		found, err := s.opt.Store.Backend(c.Context(), c.AccountID(), backendKindOf(id), id)
		if err != nil && account.CodeOf(err) != account.CodeNotFound {
			return err
		}
		if found != nil {
			child.Backend = &backendRow{Backend: *found}
		}
		for _, e := range p.Elsewhere {
			if e.Child == id {
				child.At = append(child.At, e.Replica)
			}
		}
		p.ChildRows = append(p.ChildRows, child)
	}
	if b.Response != nil {
		for _, name := range slices.Sorted(maps.Keys(b.Response.Headers)) {
			p.Headers = append(p.Headers, name+": "+b.Response.Headers[name])
		}
	}
	if kind == account.BackendTunnelGroup {
		page, err := s.opt.Store.ListLabelledTunnels(c.Context(), c.AccountID(), b.Labels,
			account.Page{Limit: pageSize})
		if err != nil {
			return err
		}
		p.Tunnels = page.Tunnels
	}
	list := Path + "backends?" + url.Values{"kind": {string(kind)}}.Encode()
	return c.show(http.StatusOK, view{Page: "backend", Title: p.Name(), Nav: "backends",
		Crumb: &link{kindName(kind) + " backends", list}, Live: "audit", Data: p})
}
