// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// forwardInternal sends traffic to an endpoint with the internal binding of the same account.
type forwardInternal struct {
	url   *template
	fixed string // in normal form
	tcp   bool
}

func (a *forwardInternal) provision(c *config) {
	a.tcp = c.c.policy.options.Scheme == "tcp"
	a.url = c.template("url")
	c.oneOf("on_error", "halt", map[string]string{"halt": "",
		"continue": "traffic that cannot be forwarded is answered with an error"})
	if a.url == nil {
		if !c.has("url") {
			c.missing("url", "such as http://api.internal")
		}
		return
	}
	text, fixed := a.url.fixed()
	if !fixed {
		return
	}
	var err error
	if a.fixed, err = internalURL(text, a.tcp); err != nil {
		c.c.problem(c.values["url"], text, "%v", err)
	}
}

// host returns the host that traffic goes to, "*" if it is computed for each request.
func (a *forwardInternal) host() string {
	u, err := account.ParseBindingURL(account.BindingInternal, a.fixed)
	if err != nil {
		return "*"
	}
	return u.Host
}

func (a *forwardInternal) serve(x *exchange) {
	target := a.fixed
	if target == "" {
		text, err := a.url.render(x, nil)
		if err == nil {
			target, err = internalURL(text, a.tcp)
		}
		if err != nil {
			x.fail()
			return
		}
	}
	x.finish(Target{InternalURL: target})
}

// internalURL reads the URL of an endpoint with the internal binding and returns it in normal form.
func internalURL(raw string, tcp bool) (string, error) {
	u, err := account.ParseBindingURL(account.BindingInternal, raw)
	switch {
	case strings.HasPrefix(strings.ToLower(raw), "https://"):
		return "", fmt.Errorf("write http://: between endpoints of the service there is no TLS to ask for")
	case err != nil:
		for _, f := range account.FieldsOf(err) {
			return "", fmt.Errorf("this is no URL of an internal endpoint: %s", f.Rule)
		}
		return "", err
	case tcp && u.Scheme != "tcp":
		return "", fmt.Errorf("a tcp endpoint forwards to tcp://NAME.internal:PORT")
	case !tcp && u.Scheme != "http":
		return "", fmt.Errorf("an http endpoint forwards to http://NAME.internal[:PORT]")
	}
	return u.String(), nil
}

// forwardBackend forwards traffic to a backend of the same account. The store checks, by the
// policy's facts, that the backend exists.
type forwardBackend struct{ id string }

func (a *forwardBackend) provision(c *config) {
	if !c.has("backend_id") {
		c.missing("backend_id", "the id of a backend")
		return
	}
	a.id = c.str("backend_id", "")
	for _, k := range account.BackendKinds() {
		if account.ValidID(k.IDPrefix(), a.id) {
			return
		}
	}
	c.c.problem(c.values["backend_id"], a.id,
		"%q is no id of a backend; those are such as bkdfo-…, bkdtg-… and come from the API", truncate(a.id))
}

func (a *forwardBackend) serve(x *exchange) { x.finish(Target{BackendID: a.id}) }
