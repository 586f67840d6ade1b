// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// maxRefusals is how many refused tokens a page shows, of those that are no older than
// refusalsShown.
const (
	maxRefusals   = 20
	refusalsShown = 7 * 24 * time.Hour
)

type clustersPage struct {
	Rows    []account.Cluster
	Pager   pager
	Refused []refusedToken
}

type clusterPage struct {
	account.Cluster
	Refused []refusedToken
}

// refusedToken is the event of a ServiceAccount token that was refused.
type refusedToken struct{ account.AuditEvent }

// Reason returns why it was refused, as a sentence.
func (r refusedToken) Reason() string { return sentence(r.Details["reason"]) }

// Facts returns what else is known of the token.
func (r refusedToken) Facts() []fact {
	var facts []fact
	for _, f := range eventRow(r).Facts() {
		if f.Name != "reason" {
			facts = append(facts, f)
		}
	}
	return facts
}

// clusterHandlers serve the pages of clusters.
type clusterHandlers struct {
	clusters account.Clusters
	audit    account.AuditLog
	baseURL  string // baseURL is the API's, of which tokens' audiences consist.
}

func (h *clusterHandlers) list(c *call) error {
	found, more, err := h.clusters.ListClusters(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	p := clustersPage{Rows: found, Pager: pagerOf(c, found, more, clusterID, nil)}
	if p.Refused, err = h.refusedTokens(c, ""); err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "clusters", Title: "Clusters", Nav: "clusters", Live: "audit", Poll: true,
		Data: p})
}

func (h *clusterHandlers) show(c *call) error {
	found, err := h.clusters.Cluster(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := clusterPage{Cluster: *found}
	p.Audience = account.TokenAudience(h.baseURL, p.AccountID)
	if p.Refused, err = h.refusedTokens(c, p.ID); err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "cluster", Title: p.Name, Nav: "clusters",
		Crumb: &link{"Clusters", Path + "clusters"}, Live: "audit", Poll: true, Data: p})
}

// refusedTokens returns the newest refused tokens of the account, or of a cluster.
func (h *clusterHandlers) refusedTokens(c *call, clusterID string) ([]refusedToken, error) {
	found, err := h.audit.AuditEvents(c.Context(), c.AccountID(),
		account.AuditFilter{Type: account.AuditTokenRefused, ObjectID: clusterID}, account.Page{Limit: maxRefusals})
	if err != nil {
		return nil, err
	}
	var all []refusedToken
	for _, e := range found.Events {
		if c.now().Sub(e.OccurredAt) < refusalsShown {
			all = append(all, refusedToken{e})
		}
	}
	return all, nil
}

// confirmDelete asks before a cluster is deleted.
func (h *clusterHandlers) confirmDelete(c *call) error {
	found, err := h.clusters.Cluster(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	facts := []fact{{"Name", found.Name}, {"Issuer", found.Issuer}, {"Id", found.ID}}
	for _, subject := range found.Subjects {
		facts = append(facts, fact{sentenceCase(string(subject.Role)),
			subject.Namespace + "/" + subject.ServiceAccount})
	}
	if found.Description != "" {
		facts = append(facts, fact{"Description", found.Description})
	}
	page := link{found.Name, Path + "clusters/" + found.ID}
	return c.confirm("clusters", page, confirmation{Question: "Delete this cluster?", Facts: facts,
		Effect: "Tokens of its ServiceAccounts are refused at once, and what was opened with them ends within a " +
			"second: its pods call no endpoints, and what it exports is not reached, until its operator has other " +
			"credentials.",
		Verb: "Delete cluster", Busy: "Deleting", Back: page.Href, Danger: true})
}

func (h *clusterHandlers) delete(c *call) error {
	err := h.clusters.DeleteCluster(c.Context(), c.Caller(), c.ID())
	return c.finish(err, c.returnPath(Path+"clusters", Path+"clusters/"+c.ID()), notice{Code: noticeClusterDeleted})
}
