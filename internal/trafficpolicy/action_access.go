// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/http"
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// deny refuses a connection or a request.
type deny struct{ status int }

func (a *deny) provision(c *config) {
	if c.c.phase != onTCPConnect { // a connection is closed without a status
		a.status = c.number("status_code", http.StatusForbidden, 400, 599)
	}
}

func (a *deny) serve(x *exchange) { x.refuse(a.status, account.CodeDenied, deniedSentence) }

const deniedSentence = "The traffic policy of this endpoint does not admit this request."

// restrictIPs admits callers by their address.
type restrictIPs struct {
	allow, deny []network
	enforce     bool
}

// network is an entry of a list: fixed, or a template that is rendered for each request.
type network struct {
	prefix  netip.Prefix
	dynamic *template
}

const maxNetworks = 1000

func (a *restrictIPs) provision(c *config) {
	a.enforce = c.flag("enforce", true)
	a.allow = networks(c, c.items("allow", maxNetworks))
	a.deny = networks(c, c.items("deny", maxNetworks))
	if len(a.allow) == 0 && c.values["allow"] == nil {
		c.missing("allow",
			"only callers in it are admitted; to admit all that deny does not name, write allow: [0.0.0.0/0, \"::/0\"]")
	}
}

func networks(c *config, items []*yaml.Node) []network {
	var all []network
	for _, item := range items {
		t := c.c.compileTemplate(item)
		text, fixed := t.fixed()
		if !fixed {
			all = append(all, network{dynamic: t})
			continue
		}
		p, err := parsePrefix(text)
		if err != nil {
			c.c.problem(item, item.Value, "%v", err)
		}
		all = append(all, network{prefix: p})
	}
	return all
}

func (a *restrictIPs) serve(x *exchange) {
	admitted := a.allows(x)
	x.setResult("restrict_ips.action", map[bool]string{true: "allow", false: "deny"}[admitted])
	if a.enforce && !admitted {
		x.refuse(http.StatusForbidden, account.CodeDenied, deniedSentence)
		return
	}
	x.next()
}

// allows reports whether the caller's address is admitted. It returns false when an entry that
// matters cannot be evaluated.
func (a *restrictIPs) allows(x *exchange) bool {
	ip := x.conn.ClientIP.Unmap().WithZone("")
	if !ip.IsValid() {
		return false
	}
	denied, certain := containsAddr(x, a.deny, ip)
	if denied || !certain {
		return false
	}
	allowed, _ := containsAddr(x, a.allow, ip)
	return allowed
}

// containsAddr reports whether one of the networks contains the address; certain is false when an
// entry could not be evaluated.
func containsAddr(x *exchange, list []network, ip netip.Addr) (in, certain bool) {
	certain = true
	for _, n := range list {
		p := n.prefix
		if n.dynamic != nil {
			text, err := n.dynamic.render(x, nil)
			if err == nil {
				p, err = parsePrefix(text)
			}
			if err != nil {
				certain = false
				continue
			}
		}
		if p.Contains(ip) {
			return true, certain
		}
	}
	return false, certain
}
