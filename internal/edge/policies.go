// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"container/list"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const (
	maxPolicies = 4096 // compiled policies; the least recently used goes first
	maxSources  = 4    // texts per policy; the members of a pool may have different ones
)

// policies caches compiled traffic policies. All members of a pool share one: its counters are the
// URL's.
type policies struct {
	log    *slog.Logger
	logins trafficpolicy.LoginHandler

	mu    sync.Mutex
	byURL map[policyKey]*list.Element // elements of lru; their values are *policyEntry
	lru   *list.List                  // entries, the most recently used first
}

type policyKey struct{ accountID, binding, url string }

// policyEntry is the policy of one URL.
type policyEntry struct {
	key policyKey

	mu      sync.Mutex
	sources []string // texts that compile to it
	policy  *trafficpolicy.Policy
	err     error // compilation error
}

func newPolicies(log *slog.Logger, logins trafficpolicy.LoginHandler) *policies {
	return &policies{log: log, logins: logins, byURL: make(map[policyKey]*list.Element), lru: list.New()}
}

// forEndpoint returns the policy of the endpoint, nil when it has none; CodePolicyBroken when it
// does not compile.
func (p *policies) forEndpoint(ep *account.Endpoint) (*trafficpolicy.Policy, error) {
	if ep.TrafficPolicy == "" {
		return nil, nil //nolint:nilnil // documented
	}
	entry := p.entry(policyKey{ep.AccountID, ep.Bindings[0], ep.URL})
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if slices.Contains(entry.sources, ep.TrafficPolicy) {
		return entry.policy, entry.err
	}
	compiled, err := trafficpolicy.Compile(ep.TrafficPolicy, trafficpolicy.Options{
		Scheme: ep.Scheme, Binding: ep.Bindings[0], Stored: true, LoginHandler: p.logins,
		Costs: costLog{p.log.With("endpoint", ep.ID, "url", ep.URL)}})
	switch {
	case err != nil:
		p.log.Error("traffic policy does not compile; all traffic is refused", "endpoint", ep.ID, "url", ep.URL, "err",
			err)
		err = &account.Error{Code: account.CodePolicyBroken,
			Msg: "the traffic policy of " + ep.URL + " cannot be applied", Cause: err}
	case entry.policy != nil && compiled.Facts().Digest == entry.policy.Facts().Digest &&
		len(entry.sources) < maxSources:
		entry.sources = append(entry.sources, ep.TrafficPolicy)
		return entry.policy, nil
	}
	entry.sources, entry.policy, entry.err = []string{ep.TrafficPolicy}, compiled, err
	return entry.policy, entry.err
}

// costLog logs that the policy of an endpoint is too costly.
type costLog struct{ log *slog.Logger }

// CostExceeded implements trafficpolicy.CostObserver.
func (l costLog) CostExceeded(rule string) {
	l.log.Warn("traffic policy exceeds its cost limit; requests are refused", "rule", rule)
}

func (p *policies) entry(key policyKey) *policyEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.byURL[key]; e != nil {
		p.lru.MoveToFront(e)
		return e.Value.(*policyEntry)
	}
	entry := &policyEntry{key: key}
	p.byURL[key] = p.lru.PushFront(entry)
	if p.lru.Len() > maxPolicies {
		oldest := p.lru.Remove(p.lru.Back()).(*policyEntry)
		delete(p.byURL, oldest.key)
	}
	return entry
}

// connVerdicts caches the verdicts of policies on one client connection, so that on_tcp_connect
// runs once per connection and not per request. The zero value is ready. It is safe for
// concurrent use.
type connVerdicts struct {
	mu      sync.Mutex
	started time.Time
	cached  []cachedVerdict
}

type cachedVerdict struct {
	policy  *trafficpolicy.Policy
	verdict trafficpolicy.Verdict
}

// maxCachedVerdicts bounds the cache: policies of the endpoint, of internal ones behind it, and
// older versions.
const maxCachedVerdicts = 2 * maxHops

// verdict returns the policy's verdict on the connection, the same every time. A nil c evaluates
// the policy anew.
func (c *connVerdicts) verdict(
	ctx context.Context, p *trafficpolicy.Policy, conn *trafficpolicy.Conn,
) trafficpolicy.Verdict {
	if c == nil {
		conn.Started = time.Now()
		return p.Connect(ctx, conn)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started.IsZero() {
		c.started = time.Now()
	}
	conn.Started = c.started
	for i := range c.cached {
		if c.cached[i].policy == p {
			return c.cached[i].verdict
		}
	}
	v := p.Connect(ctx, conn)
	if len(c.cached) == maxCachedVerdicts {
		c.cached = slices.Delete(c.cached, 0, 1)
	}
	c.cached = append(c.cached, cachedVerdict{p, v})
	return v
}

// policyConn returns what a policy may know of the client. The pod is known only from an operator's
// authenticated session, and only where its identity was not truncated.
func (info *ClientInfo) policyConn(ep *account.Endpoint) *trafficpolicy.Conn {
	c := &trafficpolicy.Conn{ClientIP: info.ClientIP, Endpoint: ep, TLS: info.TLS, ServerName: info.ServerName,
		Port: info.Port, Locator: info.Locator, Aborter: info.Aborter}
	if at, err := netip.ParseAddrPort(info.ClientAddr); err == nil {
		c.ClientPort = int(at.Port())
	}
	if info.OperatorID == "" {
		return c
	}
	c.OperatorID, c.Cluster = info.OperatorID, info.Cluster
	if pod := info.StatedPod; pod != nil && !pod.Truncated {
		c.Pod = &trafficpolicy.Pod{Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.ServiceAccount}
		if !pod.AnnotationsCut {
			c.Pod.Annotations = pod.Annotations
		}
	}
	return c
}
