// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"crypto/tls"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The endpoints of a chain.
const (
	clusterURL = "http://web.demo"
	httpURL    = "http://web." + domain
	httpsURL   = "https://safe." + domain
)

// chain is an agent with endpoints of three kinds, an upstream, and a forwarder.
type chain struct {
	r         *rig
	agent     *testAgent
	forwarder string            // its address
	ids       map[string]string // of the endpoints, by URL
}

// startChain binds the endpoints. The replicas are where agent and forwarder are pinned to; -1 is
// nowhere.
func (r *rig) startChain(agentReplica, forwarderReplica int) *chain {
	r.t.Helper()
	c, upstream := &chain{r: r}, startUpstream(r.t)
	c.agent, c.ids = r.startAgent(agentReplica, endpoint{url: clusterURL, binding: "kubernetes", upstream: upstream},
		endpoint{url: httpURL, binding: "public", upstream: upstream},
		endpoint{url: httpsURL, binding: "public", upstream: upstream})
	c.forwarder = r.startForwarder(forwarderReplica, map[string]string{clusterURL: c.ids[clusterURL]})[clusterURL]
	return c
}

// targets returns targets of every kind: through the forwarder, and at the public listeners behind
// the balancer, over connections that are kept and that are fresh.
func (c *chain) targets() []*target {
	return append(c.throughForwarder(), append(c.public("http"), c.public("https")...)...)
}

func (c *chain) throughForwarder() []*target {
	return []*target{{name: "forwarder, kept", addr: c.forwarder, host: "web.demo", kept: true},
		{name: "forwarder, fresh", addr: c.forwarder, host: "web.demo"}}
}

// public returns targets behind the balancer, for http or https.
func (c *chain) public(scheme string) []*target {
	addr := c.r.balancer.addrs[frontHTTP]
	if scheme == "https" {
		addr = c.r.balancer.addrs[frontHTTPS]
	}
	return c.publicAt(scheme, addr)
}

// api returns targets of the API behind the balancer.
func (c *chain) api() []*target {
	c.r.t.Helper()
	config, err := trust.Options{CASHA256: c.r.fingerprint}.ClientConfig()
	must.Succeed(c.r.t, err)
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"http/1.1"}
	addr := c.r.balancer.addrs[frontService]
	return []*target{{name: "API, kept", addr: addr, host: addr, key: c.r.apiKey, tls: config, kept: true},
		{name: "API, fresh", addr: addr, host: addr, key: c.r.apiKey, tls: config}}
}

// publicAt returns targets at a public listener.
func (c *chain) publicAt(scheme, addr string) []*target {
	host := "web." + domain
	var config *tls.Config
	if scheme == "https" {
		host = "safe." + domain
		config = &tls.Config{RootCAs: c.r.roots, ServerName: host}
	}
	return []*target{{name: "public " + scheme + ", kept", addr: addr, host: host, tls: config, kept: true},
		{name: "public " + scheme + ", fresh", addr: addr, host: host, tls: config}}
}
