// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Identity headers of upstream requests.
const (
	headerUserID    = "Fairlead-Auth-User-Id"
	headerEmail     = "Fairlead-Auth-Email"
	headerName      = "Fairlead-Auth-Name"
	headerProvider  = "Fairlead-Auth-Provider"
	headerGroups    = "Fairlead-Auth-Groups"
	headerTruncated = "Fairlead-Auth-Groups-Truncated" // the number of missing groups; absent for 0
)

// maxHeader is the size in bytes of the largest identity header. Groups that do not fit are left
// out, each as a whole, and counted.
const maxHeader = 4 << 10

// upstreamRequest returns the request for the upstream: without login cookies and without identity
// headers of the client, in any spelling, with headers that identify the person; result is nil for
// an anonymous request. It sends the groups that the config forwards.
func upstreamRequest(r *http.Request, c *trafficpolicy.LoginConfig, result *trafficpolicy.LoginResult) *http.Request {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return account.IsReservedHeader(name) })
	removeReservedConnectionTokens(r.Header)
	trafficpolicy.DropLoginCookies(r.Header)
	if result == nil {
		return r
	}
	id := &result.Identity
	for name, text := range map[string]string{headerUserID: id.ID, headerEmail: id.Email, headerName: id.Name,
		headerProvider: result.Provider.Name} {
		if text = escapeHeader(text, ""); text != "" && len(text) <= maxHeader {
			r.Header[name] = []string{text}
		}
	}
	groups, missing := joinGroups(id.Groups, c.ForwardsGroup)
	if groups != "" {
		r.Header[headerGroups] = []string{groups}
	}
	if missing > 0 {
		r.Header[headerTruncated] = []string{strconv.Itoa(missing)}
	}
	return r
}

// removeReservedConnectionTokens keeps a client from declaring identity headers hop-by-hop, which
// would remove them.
func removeReservedConnectionTokens(h http.Header) {
	lines := h["Connection"]
	for i, line := range lines {
		if !strings.Contains(strings.ToLower(line), "fairlead") {
			continue
		}
		var kept []string
		for token := range strings.SplitSeq(line, ",") {
			if token = strings.TrimSpace(token); token != "" && !account.IsReservedHeader(token) {
				kept = append(kept, token)
			}
		}
		lines[i] = strings.Join(kept, ", ")
	}
}

// joinGroups joins the groups that are forwarded by commas, and returns how many of them did not
// fit.
func joinGroups(groups []string, forwards func(string) bool) (joined string, truncated int) {
	var b strings.Builder
	for _, g := range groups {
		if g == "" || !forwards(g) {
			continue
		}
		g = escapeHeader(g, ",")
		if b.Len()+1+len(g) > maxHeader {
			truncated++
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(g)
	}
	return b.String(), truncated
}

// escapeHeader percent-encodes everything but printable ASCII, "%" and the characters in extra.
// Leading and trailing spaces are encoded too: headers lose them.
func escapeHeader(text, extra string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		edge := c == ' ' && (i == 0 || i == len(text)-1)
		if c < ' ' || c > '~' || c == '%' || edge || strings.IndexByte(extra, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
