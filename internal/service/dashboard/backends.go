// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
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

// serving says which of the children serves.
func (b backendRow) serving() string {
	return fmt.Sprintf("child %d of %d", slices.Index(b.Children, b.Active)+1, len(b.Children))
}

type backendsPage struct {
	Kind  account.BackendKind
	Kinds []pageVariant
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

// backendHandlers serve the pages of backends.
type backendHandlers struct {
	reader    *backendReader
	tunnels   account.LabelledTunnels
	endpoints account.Endpoints
}

// backendsPath returns the path of the list of the backends of a kind.
func backendsPath(kind account.BackendKind) string {
	return Path + "backends?" + url.Values{"kind": {string(kind)}}.Encode()
}

// list lists the backends of one kind, as the store does.
func (h *backendHandlers) list(c *call) error {
	p := backendsPage{Kind: account.BackendFailover}
	for _, kind := range account.BackendKinds() {
		if c.Request.URL.Query().Get("kind") == string(kind) {
			p.Kind = kind
		}
	}
	for _, kind := range account.BackendKinds() {
		p.Kinds = append(p.Kinds, pageVariant{kindName(kind), backendsPath(kind), kind == p.Kind})
	}
	found, more, err := h.reader.store.ListBackends(c.Context(), c.AccountID(), p.Kind, c.page())
	if err != nil {
		return err
	}
	if p.Rows, err = h.reader.rows(c, found...); err != nil {
		return err
	}
	p.Pager = pagerOf(c, found, more, backendID, url.Values{"kind": {string(p.Kind)}})
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
func (b backendRow) Name() string { return cmp.Or(b.Description, b.ID) }

func (h *backendHandlers) show(c *call) error {
	b, err := h.reader.named(c)
	if err != nil {
		return err
	}
	rows, err := h.reader.rows(c, *b)
	if err != nil {
		return err
	}
	p := backendPage{backendRow: rows[0]}
	children := b.Children
	if b.Kind == account.BackendWeighted {
		children = slices.Sorted(maps.Keys(b.Weights))
	}
	for _, id := range children {
		child := backendChild{ID: id, Weight: b.Weights[id], Active: id == p.Active}
		found, err := h.reader.store.Backend(c.Context(), c.AccountID(), backendKindOf(id), id)
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
		p.Headers = pairList(b.Response.Headers, ": ")
	}
	if b.Kind == account.BackendTunnelGroup {
		page, _, err := h.tunnels.ListLabelledTunnels(c.Context(), c.AccountID(), b.Labels,
			account.Page{Limit: pageSize})
		if err != nil {
			return err
		}
		p.Tunnels = page
	}
	return c.show(http.StatusOK, view{Page: "backend", Title: p.Name(), Nav: "backends",
		Crumb: &link{kindName(b.Kind) + " backends", backendsPath(b.Kind)}, Live: "audit", Data: p})
}

// confirmDelete asks before a backend is deleted. One that others use cannot be deleted: the
// page names them.
func (h *backendHandlers) confirmDelete(c *call) error {
	b, err := h.reader.named(c)
	if err != nil {
		return err
	}
	row := backendRow{Backend: *b}
	facts := []fact{{"Kind", kindName(b.Kind)}, {"What it does", orDash(row.Summary())},
		{"Description", orDash(b.Description)}, {"Id", b.ID}}
	parents, err := h.reader.parents(c, b.ID)
	if err != nil {
		return err
	}
	endpoints, err := h.usedBy(c, b.ID)
	if err != nil {
		return err
	}
	page := link{row.Name(), Path + "backends/" + b.ID}
	q := confirmation{Question: "Delete this backend?", Verb: "Delete backend", Busy: "Deleting", Back: page.Href,
		Danger: true, Effect: "No endpoint has it as its backend, and no other backend has it as a child. " +
			"While a traffic policy forwards to it, it is not deleted, and the server names the endpoint."}
	for _, use := range []struct {
		what string
		ids  []string
	}{{"Child of", parents}, {"Backend of", endpoints}} {
		if len(use.ids) > 0 {
			facts = append(facts, fact{use.what, strings.Join(use.ids, ", ")})
			q.Question, q.Verb = "This backend is in use", ""
			q.Effect = "It cannot be deleted while others use it. Take it out there, or delete those first."
		}
	}
	q.Facts = facts
	return c.confirm("backends", page, q)
}

// usedBy returns the URLs of the endpoints that have the backend.
func (h *backendHandlers) usedBy(c *call, id string) (urls []string, err error) {
	_, err = eachEndpoint(c, h.endpoints, account.EndpointFilter{Type: account.TypeCloud},
		func(e *account.Endpoint) bool {
			if e.BackendID == id {
				urls = append(urls, e.URL)
			}
			return true
		})
	return urls, err
}

func (h *backendHandlers) delete(c *call) error {
	b, err := h.reader.named(c)
	if err == nil {
		err = h.reader.store.DeleteBackend(c.Context(), c.Caller(), b.Kind, b.ID)
	}
	if err != nil {
		return err
	}
	return c.redirect(c.returnPath(backendsPath(b.Kind), Path+"backends/"+b.ID), notice{Code: noticeBackendDeleted})
}
