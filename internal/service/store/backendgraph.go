// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// backendGraph is how the backends of an account hang together.
type backendGraph struct {
	kinds    map[string]account.BackendKind
	children map[string][]string
	parents  map[string][]string
}

// graph reads the backends of an account. Who changes what they refer to holds Accounts.lock.
func (bs *Backends) graph(t *tx, accountID string) (*backendGraph, error) {
	g := &backendGraph{kinds: map[string]account.BackendKind{}, children: map[string][]string{},
		parents: map[string][]string{}}
	err := t.Each(func(from scanner) error {
		var id, kind string
		err := from.Scan(&id, &kind)
		g.kinds[id] = account.BackendKind(kind)
		return err
	}, `SELECT id, kind FROM backends WHERE account_id = $1`, accountID)
	if err != nil {
		return nil, err
	}
	return g, t.Each(func(from scanner) error {
		var parent, child string
		err := from.Scan(&parent, &child)
		g.children[parent] = append(g.children[parent], child)
		g.parents[child] = append(g.parents[child], parent)
		return err
	},
		`SELECT c.parent_id, c.child_id FROM backend_children c JOIN backends b ON b.id = c.parent_id
		WHERE b.account_id = $1 ORDER BY c.parent_id, c.position`, accountID)
}

// put gives a backend these children.
func (g *backendGraph) put(b account.Backend) {
	for _, child := range g.children[b.ID] {
		g.parents[child] = slices.DeleteFunc(g.parents[child], func(id string) bool { return id == b.ID })
	}
	g.kinds[b.ID], g.children[b.ID] = b.Kind, childrenOf(b)
	for _, child := range g.children[b.ID] {
		g.parents[child] = append(g.parents[child], b.ID)
	}
}

// reachable returns id and everything that the edges lead to from there.
func reachable(edges map[string][]string, id string) map[string]bool {
	found, todo := map[string]bool{id: true}, []string{id}
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		for _, one := range edges[next] {
			if !found[one] {
				found[one] = true
				todo = append(todo, one)
			}
		}
	}
	return found
}

// depth is the number of backends on the longest way along the edges from id. There is no cycle.
func depth(edges map[string][]string, id string, known map[string]int) int {
	if d := known[id]; d > 0 {
		return d
	}
	deepest := 0
	for _, one := range edges[id] {
		deepest = max(deepest, depth(edges, one, known))
	}
	known[id] = deepest + 1
	return known[id]
}

// hasHTTPResponse reports whether there is an http_response at id or below it.
func (g *backendGraph) hasHTTPResponse(id string) bool {
	for below := range reachable(g.children, id) {
		if g.kinds[below] == account.BackendHTTPResponse {
			return true
		}
	}
	return false
}

const (
	ruleUnknownBackend = "names no backend of this account"
	ruleTCPAnswer      = "a tcp endpoint cannot forward to an http_response backend, at any depth; leave it out " +
		"there, " +
		"or use an http endpoint"
)

// checkChildren checks a backend's place among the others: its children exist,
// none leads back to it, nothing is nested too deep, and no tcp endpoint comes to an http_response.
func (bs *Backends) checkChildren(t *tx, b account.Backend) error {
	children := childrenOf(b)
	if len(children) == 0 {
		return nil
	}
	g, err := bs.graph(t, b.AccountID)
	if err != nil {
		return err
	}
	var broken []account.FieldError
	for _, child := range children {
		switch _, known := g.kinds[child]; {
		case !known:
			broken = append(broken, account.FieldError{Field: "backends", Value: account.Shorten(child),
				Rule: ruleUnknownBackend})
		case reachable(g.children, child)[b.ID]:
			broken = append(broken, account.FieldError{Field: "backends", Value: child,
				Rule: "leads back to " + b.ID + ", which cannot contain itself"})
		}
	}
	if len(broken) > 0 {
		return account.InvalidAll(broken)
	}
	g.put(b)
	if n := depth(g.children, b.ID, map[string]int{}) + depth(g.parents, b.ID,
		map[string]int{}) - 1; n > account.MaxBackendDepth {
		return account.Invalid("backends", strings.Join(children, ","),
			fmt.Sprintf("would nest backends %d deep; at most %d are allowed", n, account.MaxBackendDepth))
	}
	return bs.refuseAnswersUnderTCP(t, g, b)
}

// refuseAnswersUnderTCP looks for tcp endpoints that come to an http_response by the changed
// backend.
func (bs *Backends) refuseAnswersUnderTCP(t *tx, g *backendGraph, b account.Backend) error {
	if !g.hasHTTPResponse(b.ID) {
		return nil
	}
	above := reachable(g.parents, b.ID)
	return t.Each(func(from scanner) error {
		var used, endpoint, url string
		if err := from.Scan(&used, &endpoint, &url); err != nil || !above[used] {
			return err
		}
		return account.Invalid("backends", strings.Join(childrenOf(b), ","),
			ruleTCPAnswer+": endpoint "+endpoint+" ("+url+") uses "+used)
	},
		`SELECT r.backend_id, e.id, e.url FROM endpoint_backends r JOIN endpoints e ON e.id = r.endpoint_id
		WHERE e.account_id = $1 AND e.scheme = 'tcp'
		ORDER BY e.id`, b.AccountID)
}

// BackendTree implements account.BackendTrees.
func (bs *Backends) BackendTree(ctx context.Context, accountID, id string) (*account.BackendTree, error) {
	return result(ctx, bs.db, "reading backends", func(t *tx) (*account.BackendTree, error) {
		const below = `WITH RECURSIVE below (id) AS (SELECT id FROM backends WHERE account_id = $1 AND id = $2
			UNION SELECT c.child_id FROM backend_children c JOIN below ON c.parent_id = below.id) `
		tree := &account.BackendTree{Root: id, All: map[string]account.Backend{}}
		all, err := backends.all(t, `id IN (`+below+`SELECT id FROM below)`, accountID, id)
		if err != nil {
			return nil, err
		}
		found := map[string]*account.Backend{}
		for i := range all {
			found[all[i].ID] = &all[i]
		}
		if found[id] == nil {
			return nil, notFound("backend", id)
		}
		err = bs.addChildren(t, found, `parent_id IN (`+below+`SELECT id FROM below)`, accountID, id)
		for _, b := range found {
			tree.All[b.ID] = *b
		}
		return tree, err
	})
}

// mayForward reports whether the endpoint may refer to the backends, of its policy and of its own.
func (bs *Backends) mayForward(t *tx, row *endpointRow, ofPolicy []string, own string) error {
	if own != "" && len(ofPolicy) > 0 {
		return account.Invalid("backend_id", own,
			"the traffic_policy has a forward-backend action, of which backend_id is the short form; give one of "+
				"the two")
	}
	if own == "" && len(ofPolicy) == 0 {
		return nil
	}
	if err := bs.accounts.lock(t, row.e.AccountID); err != nil {
		return err
	}
	g, err := bs.graph(t, row.e.AccountID)
	if err != nil {
		return err
	}
	var broken []account.FieldError
	check := func(field, id string) {
		switch _, known := g.kinds[id]; {
		case !known:
			broken = append(broken, account.FieldError{Field: field, Value: account.Shorten(id),
				Rule: ruleUnknownBackend})
		case row.e.Scheme == "tcp" && g.hasHTTPResponse(id):
			broken = append(broken, account.FieldError{Field: field, Value: id, Rule: ruleTCPAnswer})
		}
	}
	for _, id := range ofPolicy {
		check("traffic_policy", id)
	}
	if own != "" {
		check("backend_id", own)
	}
	if len(broken) > 0 {
		return account.InvalidAll(broken)
	}
	return nil
}
