// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// admitHost prevents clients of one endpoint from naming another one to an upstream that serves
// several: CodeMisdirected for a request whose Host is not one of the endpoint's names. Where the
// upstream does not see the client's Host, the endpoint's own takes its place.
func (info *ClientInfo) admitHost(r *http.Request, ep *account.Endpoint) *account.Error {
	if isNameOf(ep, r.Host) {
		return nil
	}
	own := strings.TrimPrefix(ep.URL, ep.Scheme+"://")
	if ep.HostMode != account.HostPassthrough && ep.HostMode != "" {
		r.Host = own
		if !info.AppendForwarded {
			r.Header.Set("X-Forwarded-Host", own)
		}
		return nil
	}
	msg := fmt.Sprintf("The request's Host, %q, is not a name of %s. Call it as %s", account.Shorten(r.Host),
		ep.URL, own)
	if ep.Type != account.TypeCloud {
		msg += ", or start its agent with --host-header rewrite"
	}
	return account.Errorf(account.CodeMisdirected, "%s.", msg)
}

// isNameOf reports whether a request's Host names the kubernetes endpoint, or nothing that could be
// another endpoint: an IP address, localhost, or nothing at all.
func isNameOf(ep *account.Endpoint, host string) bool {
	if host == ep.Host || host == ep.HostPort || host == "" {
		return true
	}
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
	}
	name = strings.TrimSuffix(name, ".")
	if strings.EqualFold(name, "localhost") || isAddress(name) {
		return true
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || int(n) != ep.Port) {
		return false
	}
	if strings.EqualFold(name, firstLabel(ep.Host)) {
		return true
	}
	if rest, ok := cutPrefixFold(name, ep.Host); ok {
		return rest == "" || isServiceSuffix(rest)
	}
	for _, id := range [...]string{ep.ProjectionID, ep.ID} { // the upstream Service, in the operator's namespace
		rest, ok := cutPrefixFold(name, id)
		if ok && id != "" && (rest == "" || rest[0] == '.' && isServiceSuffix(rest[1+len(firstLabel(rest[1:])):])) {
			return true
		}
	}
	return false
}

// isServiceSuffix reports whether a name of a Service may go on like this behind its namespace: not
// at all, or with svc and the domain of a cluster or a cluster set.
func isServiceSuffix(s string) bool {
	rest, ok := cutPrefixFold(s, ".svc")
	return s == "" || ok && (rest == "" || rest[0] == '.')
}

func firstLabel(name string) string { label, _, _ := strings.Cut(name, "."); return label }

// cutPrefixFold is strings.CutPrefix without regard to case.
func cutPrefixFold(s, prefix string) (after string, found bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

func isAddress(name string) bool {
	if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
		name = name[1 : len(name)-1]
	} else if name == "" || name[len(name)-1] > '9' { // ParseAddr allocates its error
		return false
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// webpackRefusal is the whole answer of webpack-dev-server, in version 4 with the status 200.
const webpackRefusal = "Invalid Host header"

// hostRefusals are what development servers answer when they do not expect the Host.
var hostRefusals = [][]byte{
	[]byte("Blocked request. This host ("), // Vite, and what is built on it
	[]byte(webpackRefusal),
	[]byte("Invalid host header"), // Starlette, FastAPI
	[]byte("Blocked host: "),      // Rails 6
	[]byte("Blocked hosts: "),     // Rails 7 and later
	[]byte("DisallowedHost"),      // Django
}

const (
	longestRefusal = 28       // bytes of the longest of hostRefusals
	refusalLimit   = 16 << 10 // bytes of an answer that are searched: a page of Rails begins with its styles
)

// watchForHostRefusal makes the report of this request tell the agent when the answer's body says
// that the upstream does not accept the Host. It looks at answers that may: 403, 400, and the one of
// webpack-dev-server 4, which is a 200.
func (x *exchange) watchForHostRefusal(res *http.Response) {
	agent := x.delivery.target.agent
	switch {
	case res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusBadRequest &&
		(res.StatusCode != http.StatusOK || res.ContentLength != int64(len(webpackRefusal))):
	case res.Body == http.NoBody, agent == nil, agent.Endpoint().HostMode == account.HostRewrite:
	default:
		res.Body = &refusalReader{ReadCloser: res.Body, found: &x.hostRefused, left: refusalLimit}
	}
}

// refusalReader searches the beginning of a body for one of hostRefusals.
type refusalReader struct {
	io.ReadCloser
	found *bool
	left  int    // bytes to search
	tail  []byte // last bytes that were read, where a text may have begun
}

// Read reads from the upstream.
func (r *refusalReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.left <= 0 || *r.found {
		return n, err
	}
	text := append(r.tail, p[:min(n, r.left)]...)
	r.left -= n
	for _, refusal := range hostRefusals {
		*r.found = *r.found || bytes.Contains(text, refusal)
	}
	r.tail = text[max(0, len(text)-longestRefusal+1):]
	return n, err
}
