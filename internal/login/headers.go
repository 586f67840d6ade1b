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
	headerUserID   = "Fairlead-Auth-User-Id"
	headerEmail    = "Fairlead-Auth-Email"
	headerName     = "Fairlead-Auth-Name"
	headerProvider = "Fairlead-Auth-Provider"
	headerGroups   = "Fairlead-Auth-Groups"
	headerMissing  = "Fairlead-Auth-Groups-Truncated" // how many it lacks; absent for none
)

// maxHeader bounds a header of ours in bytes; groups beyond it are left out, each as a whole, and
// counted.
const maxHeader = 4 << 10

// onward makes the request that goes on: without our cookies, and with headers that name the
// person, nil for nobody. What a client has set in any spelling of those is gone, and so is its
// word that they are not to be passed on. Of the groups, those that the config passes on are named.
func onward(r *http.Request, c *trafficpolicy.LoginConfig, found *trafficpolicy.LoginResult) *http.Request {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return account.IsReservedHeader(name) })
	dropFromConnection(r.Header)
	trafficpolicy.DropLoginCookies(r.Header)
	if found == nil {
		return r
	}
	id := &found.Identity
	for name, text := range map[string]string{headerUserID: id.ID, headerEmail: id.Email, headerName: id.Name,
		headerProvider: found.Provider.Name} {
		if text = encode(text, ""); text != "" && len(text) <= maxHeader {
			r.Header[name] = []string{text}
		}
	}
	groups, missing := joinGroups(id.Groups, c.ForwardsGroup)
	if groups != "" {
		r.Header[headerGroups] = []string{groups}
	}
	if missing > 0 {
		r.Header[headerMissing] = []string{strconv.Itoa(missing)}
	}
	return r
}

// dropFromConnection keeps a client from declaring our headers its connection's own, which would
// end with it.
func dropFromConnection(h http.Header) {
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
func joinGroups(groups []string, passes func(string) bool) (joined string, missing int) {
	var b strings.Builder
	for _, g := range groups {
		if g == "" || !passes(g) {
			continue
		}
		g = encode(g, ",")
		if b.Len()+1+len(g) > maxHeader {
			missing++
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(g)
	}
	return b.String(), missing
}

// encode percent-encodes all but printable ASCII, "%" and what else is given. Spaces at the ends
// are encoded, too: headers lose them.
func encode(text, also string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		edge := c == ' ' && (i == 0 || i == len(text)-1)
		if c < ' ' || c > '~' || c == '%' || edge || strings.IndexByte(also, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
