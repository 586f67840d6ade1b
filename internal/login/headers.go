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

// Headers that name the person to the upstream.
const (
	headerUserID    = "Fairlead-Auth-User-Id"
	headerEmail     = "Fairlead-Auth-Email"
	headerName      = "Fairlead-Auth-Name"
	headerProvider  = "Fairlead-Auth-Provider"
	headerGroups    = "Fairlead-Auth-Groups"
	headerTruncated = "Fairlead-Auth-Groups-Truncated" // how many it lacks; absent for none
)

// maxHeader bounds a header of ours in bytes; groups beyond it are left out, each as a whole, and
// counted.
const maxHeader = 4 << 10

// upstreamRequest makes the request that goes on: without our cookies, and with headers that name the
// person, nil for nobody. What a client has set in any spelling of those is gone, and so is its
// word that they are not to be passed on. Of the groups, those that the config passes on are named.
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

// removeReservedConnectionTokens keeps a client from declaring our headers its connection's own, which would
// end with it.
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

// joinGroups joins the groups that pass by commas, and returns how many of these there was no room
// for.
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

// escapeHeader percent-encodes all but printable ASCII, "%" and what else is given. Spaces at the ends
// are encoded, too: headers lose them.
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
