// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Headers that name the person to the upstream.
const (
	headerUserID   = "Fairlead-Auth-User-Id"
	headerEmail    = "Fairlead-Auth-Email"
	headerName     = "Fairlead-Auth-Name"
	headerProvider = "Fairlead-Auth-Provider"
	headerGroups   = "Fairlead-Auth-Groups"
)

// maxHeader bounds a header of ours; groups beyond it are left out, each as a whole.
const maxHeader = 4 << 10

// onward makes the request that goes on: without our cookies, and with headers that name the person, nil for nobody. What a client has set in any
// spelling of those is gone, and so is its word that they are not to be passed on.
func onward(r *http.Request, found *trafficpolicy.LoginResult) *http.Request {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	for name := range r.Header {
		if isIdentity(name) {
			delete(r.Header, name)
		}
	}
	dropFromConnection(r.Header)
	trafficpolicy.DropLoginCookies(r.Header)
	if found == nil {
		return r
	}
	id := &found.Identity
	for name, text := range map[string]string{headerUserID: id.ID, headerEmail: id.Email, headerName: id.Name, headerProvider: found.Provider.Name} {
		if text = encode(text, ""); text != "" && len(text) <= maxHeader {
			r.Header[name] = []string{text}
		}
	}
	if groups := joinGroups(id.Groups); groups != "" {
		r.Header[headerGroups] = []string{groups}
	}
	return r
}

// isIdentity says whether a header's name is kept for the edge, however it is spelled: servers that turn names into variables make one and the same of
// "-", "_", "." and whatever else is no letter and no digit.
func isIdentity(name string) bool {
	const prefix = "fairlead"
	n := len(prefix)
	if len(name) <= n || !strings.EqualFold(name[:n], prefix) {
		return false
	}
	letter, digit := 'a' <= name[n]|0x20 && name[n]|0x20 <= 'z', '0' <= name[n] && name[n] <= '9'
	return !letter && !digit
}

// dropFromConnection keeps a client from declaring our headers its connection's own, which would end with it.
func dropFromConnection(h http.Header) {
	lines := h["Connection"]
	for i, line := range lines {
		if !strings.Contains(strings.ToLower(line), "fairlead") {
			continue
		}
		var kept []string
		for token := range strings.SplitSeq(line, ",") {
			if token = strings.TrimSpace(token); token != "" && !isIdentity(token) {
				kept = append(kept, token)
			}
		}
		lines[i] = strings.Join(kept, ", ")
	}
}

// joinGroups joins groups by commas.
func joinGroups(groups []string) string {
	var b strings.Builder
	for _, g := range groups {
		g = encode(g, ",")
		if g == "" || b.Len()+1+len(g) > maxHeader {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(g)
	}
	return b.String()
}

// encode percent-encodes all but printable ASCII, "%" and what else is given. Spaces at the ends are encoded, too: headers lose them.
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
