// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const maxHeaders = 32

// header is a header to set: a canonical name and a text.
type header struct {
	name  string
	value *template
}

// hopByHopHeaders are headers of the connection, and the length, which a policy cannot set.
var hopByHopHeaders = []string{
	"Connection", "Content-Length", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade",
}

// headerName returns the canonical form of a name that a policy may set or remove.
func headerName(name string, allowHost bool) (string, error) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return "", fmt.Errorf("%q is no name of a header", truncate(name))
	case len(name) > 128:
		return "", fmt.Errorf("a header's name has at most 128 bytes")
	case slices.Contains(hopByHopHeaders, canonical):
		return "", fmt.Errorf("%s belongs to one connection; only the edge sets it", canonical)
	case canonical == "Host" && !allowHost:
		return "", fmt.Errorf("the header Host can only be set on requests, by add-headers")
	case account.IsReservedHeader(canonical):
		return "", fmt.Errorf("%s: names that begin with Fairlead- are the edge's to set", canonical)
	}
	return canonical, nil
}

func validHeaderValue(name, value string) bool {
	if name == "Host" {
		return value != "" && httpguts.ValidHostHeader(value)
	}
	return httpguts.ValidHeaderFieldValue(value)
}

// renderHeaders renders headers. It leaves out those without a valid value.
func renderHeaders(x *exchange, all []header) http.Header {
	out := make(http.Header, len(all))
	for _, h := range all {
		if v, err := h.value.render(x, nil); err == nil && validHeaderValue(h.name, v) {
			out[h.name] = []string{v}
		}
	}
	return out
}

// addHeaders adds values to the headers of a request or a response; Host it replaces.
type addHeaders struct{ headers []header }

func (a *addHeaders) provision(c *config) {
	a.headers = c.headers("headers", c.c.phase == onHTTPRequest)
	if n := c.values["headers"]; n == nil || len(n.Content) == 0 {
		c.missing("headers", "a mapping of names to values")
	}
}

func (a *addHeaders) serve(x *exchange) {
	added := renderHeaders(x, a.headers)
	target := x.w.Header()
	if x.status == 0 {
		target = x.mutableRequest().Header
	}
	for name, values := range added {
		if name == "Host" {
			x.r.Host = values[0]
			continue
		}
		target[name] = append(slices.Clip(target[name]), values...)
	}
	x.next()
}

// removeHeaders removes headers from a request or a response.
type removeHeaders struct{ names []string }

func (a *removeHeaders) provision(c *config) {
	items := c.items("headers", maxHeaders)
	for _, item := range items {
		name, err := headerName(item.Value, false)
		if err != nil {
			c.c.problem(item, item.Value, "%v", err)
		}
		a.names = append(a.names, name)
	}
	if n := c.values["headers"]; n == nil || len(n.Content) == 0 {
		c.missing("headers", "a list of names")
	}
}

func (a *removeHeaders) serve(x *exchange) {
	target := x.w.Header()
	if x.status == 0 {
		target = x.mutableRequest().Header
	}
	for _, name := range a.names {
		delete(target, name)
	}
	x.next()
}
