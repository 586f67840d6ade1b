// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"container/list"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const (
	maxPolicies = 4096 // that are kept compiled; the longest unused goes first
	maxTexts    = 4    // of one meaning, as the members of a pool may have them
)

// policies are the compiled traffic policies of the endpoints in use. All members of a pool share
// one: its counters are the URL's.
type policies struct {
	log    *slog.Logger
	logins trafficpolicy.LoginHandler

	mu   sync.Mutex
	at   map[policyKey]*list.Element // of *policyOf
	used *list.List                  // the last used in front
}

type policyKey struct{ accountID, binding, url string }

// policyOf is the policy of one URL.
type policyOf struct {
	key policyKey

	mu     sync.Mutex
	texts  []string // that mean it
	policy *trafficpolicy.Policy
	err    error // why there is none
}

func newPolicies(log *slog.Logger, logins trafficpolicy.LoginHandler) *policies {
	return &policies{log: log, logins: logins, at: make(map[policyKey]*list.Element), used: list.New()}
}

// of returns the policy of the endpoint, nil when it has none. CodePolicyBroken for one that does
// not compile.
func (p *policies) of(ep *account.Endpoint) (*trafficpolicy.Policy, error) {
	if ep.TrafficPolicy == "" {
		return nil, nil //nolint:nilnil // documented
	}
	o := p.entry(policyKey{ep.AccountID, ep.Bindings[0], ep.URL})
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.texts, ep.TrafficPolicy) {
		return o.policy, o.err
	}
	compiled, err := trafficpolicy.Compile(ep.TrafficPolicy, trafficpolicy.Options{
		Scheme: ep.Scheme, Binding: ep.Bindings[0], Stored: true, Page: policyPage, LoginHandler: p.logins,
		OnCostExceeded: func(rule string) {
			p.log.Warn("a traffic policy takes too much work; requests are refused",
				"endpoint", ep.ID, "url", ep.URL, "rule", rule)
		},
	})
	switch {
	case err != nil:
		p.log.Error("a traffic policy does not compile; nothing passes", "endpoint", ep.ID, "url", ep.URL, "err", err)
		err = &account.Error{Code: account.CodePolicyBroken, Msg: "the traffic policy of " + ep.URL + " cannot be applied",
			Cause: err}
	case o.policy != nil && compiled.Facts().Digest == o.policy.Facts().Digest && len(o.texts) < maxTexts:
		o.texts = append(o.texts, ep.TrafficPolicy)
		return o.policy, nil
	}
	o.texts, o.policy, o.err = []string{ep.TrafficPolicy}, compiled, err
	return o.policy, o.err
}

func (p *policies) entry(key policyKey) *policyOf {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.at[key]; e != nil {
		p.used.MoveToFront(e)
		return e.Value.(*policyOf)
	}
	o := &policyOf{key: key}
	p.at[key] = p.used.PushFront(o)
	if p.used.Len() > maxPolicies {
		oldest := p.used.Remove(p.used.Back()).(*policyOf)
		delete(p.at, oldest.key)
	}
	return o
}

// connVerdicts caches the verdicts of policies on one client connection, so that on_tcp_connect
// runs once per connection and not per request. The zero value is ready. It is safe for
// concurrent use.
type connVerdicts struct {
	mu      sync.Mutex
	started time.Time
	said    []said
}

type said struct {
	policy  *trafficpolicy.Policy
	verdict trafficpolicy.Verdict
}

// maxSaid is how many policies a connection remembers: those of its endpoint and of the internal
// ones behind it, and earlier ones.
const maxSaid = 2 * maxHops

// verdict is what the policy says of the connection, the same every time. c nil: of a connection
// that nobody remembers.
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
	for i := range c.said {
		if c.said[i].policy == p {
			return c.said[i].verdict
		}
	}
	v := p.Connect(ctx, conn)
	if len(c.said) == maxSaid {
		c.said = slices.Delete(c.said, 0, 1)
	}
	c.said = append(c.said, said{p, v})
	return v
}

// conn is what a policy may know of the client. Who the pod is only an operator's authenticated
// session can say, and what is cut says nothing.
func (o *ClientInfo) conn(ep *account.Endpoint) *trafficpolicy.Conn {
	c := &trafficpolicy.Conn{ClientIP: o.ClientIP, Endpoint: ep, TLS: o.TLS, ServerName: o.ServerName, Geo: o.Geo,
		Abort: o.Abort}
	if at, err := netip.ParseAddrPort(o.ClientAddr); err == nil {
		c.ClientPort = int(at.Port())
	}
	if o.OperatorID == "" {
		return c
	}
	c.OperatorID, c.Cluster = o.OperatorID, o.Cluster
	if pod := o.StatedPod; pod != nil && !pod.Truncated {
		c.Pod = &trafficpolicy.Pod{Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.ServiceAccount}
		if !pod.AnnotationsCut {
			c.Pod.Annotations = pod.Annotations
		}
	}
	return c
}

// recorder is what the parts of an exchange that write their own answers write to: it notes the
// status.
type recorder struct {
	http.ResponseWriter
	x *exchange
}

// WriteHeader notes the status of the answer.
func (w *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.x.status = status
		w.x.keepOrClose()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what the connection can do.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// policyPage answers with a page of the edge's for a policy that refuses a request.
func policyPage(w http.ResponseWriter, _ *http.Request, status int, code account.Code, msg string) {
	for {
		switch t := w.(type) {
		case *recorder:
			t.x.pageWith(status, code, msg)
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			panic("edge: a policy answers a request that is not the edge's")
		}
	}
}
