// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// accountHas is what the account has at the host of a public endpoint.
type accountHas struct {
	accountID string
	err       error
	found     []account.Endpoint // found are the endpoints that the URL names.
	other     *account.Endpoint  // other is one with the host and another scheme or port.
}

// list asks the account, if there is an API key.
func (c *publicCheck) list(ctx context.Context) {
	if c.Account == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var all []account.Endpoint
	c.accountID, all, c.err = c.Account.ListEndpoints(ctx, account.EndpointFilter{
		Bindings: []string{account.BindingPublic}})
	for i, e := range all {
		switch {
		case e.ParsedURL() == c.URL:
			c.found = append(c.found, e)
		case e.Host == c.URL.Host && (c.other == nil || e.Scheme == c.URL.Scheme):
			c.other = &all[i]
		}
	}
}

// edgeHas reports whether the edge has found the endpoint.
func (c *publicCheck) edgeHas() bool {
	return c.report.HasStatus(path.HopAnswer, path.OK)
}

func (c *publicCheck) checkEndpoint(context.Context) path.Hop {
	url := c.URL.String()
	switch {
	case c.Account == nil && c.edgeHas():
		return path.OKf("the edge has it; the account was not asked (fairlead login)")
	case c.Account == nil:
		return path.Unknownf("after fairlead login the account is asked")
	case c.err != nil:
		return path.Unknownf("the account could not be asked: %v", c.err)
	case len(c.found) > 0:
		return path.OKf("%s in the account", url).With(endpointFacts(c.found)...)
	case c.other != nil && c.other.Scheme == c.URL.Scheme && c.edgeHas():
		c.found = []account.Endpoint{*c.other}
		return path.OKf("%s in the account, which answers at this port, too", c.other.URL).
			With(endpointFacts(c.found)...)
	case c.other != nil:
		return path.Brokenf("call "+c.other.URL+", or serve this URL:\n"+
			path.AgentCommand(c.URL.Scheme, url, account.BindingPublic), "the account has %s, not %s", c.other.URL, url)
	}
	return path.Brokenf("start its agent, which is told if the domain is not granted:\n"+
		path.AgentCommand(c.URL.Scheme, url, account.BindingPublic), "the account has no public endpoint %s", url)
}

// checkDomain concludes whether the host is granted to the account: no other endpoint is online,
// and the edge finds none.
func (c *publicCheck) checkDomain(context.Context) path.Hop {
	online, cloud := 0, false
	for _, e := range c.found {
		cloud = cloud || e.Type == account.TypeCloud
		if e.Status == account.StatusOnline {
			online++
		}
	}
	switch {
	case online > 0:
		return path.OKf("granted to the account: its endpoint is online")
	case c.edgeHas():
		return path.OKf("granted: the edge has the endpoint")
	case len(c.found) == 0:
		return path.Unknownf("fairlead-server domain list, on the service's machine, shows what is granted")
	case cloud || c.code == account.CodeEndpointUnknown:
		return path.Brokenf("on the service's machine:\nfairlead-server domain grant "+c.accountID+" "+c.URL.Host,
			"%s is not granted to the account (any more)", c.URL.Host)
	}
	return path.Unknownf("the agent is told when it starts")
}

func (c *publicCheck) checkAgent(context.Context) path.Hop {
	online, since := 0, ""
	for _, e := range c.found {
		switch {
		case e.Type == account.TypeCloud:
			return path.OKf("it is a cloud endpoint, which has none of its own")
		case e.Status == account.StatusOnline:
			online++
		case e.OfflineSince != nil:
			since = "since " + ago(time.Now(), *e.OfflineSince)
		}
	}
	switch {
	case online > 0:
		return path.OKf("%d of %d online", online, len(c.found))
	case len(c.found) > 0 || c.code == account.CodeEndpointOffline:
		return path.Brokenf(path.StartAgain+":\n"+
			path.AgentCommand(c.URL.Scheme, c.URL.String(), account.BindingPublic),
			path.NoAgent, joinNonEmpty(" ", c.URL.String(), since))
	case c.report.HasStatus(path.HopEndpoint, path.Broken):
		return path.NotChecked()
	case c.edgeHas() && c.code == "":
		return path.OKf("it is connected, as the endpoint answers")
	}
	return path.Unknownf("neither the account nor the edge shows it")
}
