// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of a person's identity.
const (
	maxText       = 1024 // bytes of a text
	maxGroups     = 500
	maxAttributes = 64
	maxValues     = 64
)

// personClaims are the claims about a person.
type personClaims struct {
	Email     string       `json:"email"`
	Verified  *lenientBool `json:"email_verified"` // Verified is nil without the claim.
	Domain    lenientBool  `json:"xms_edov"`       // Domain is Microsoft's: the domain's owner is verified.
	Name      string       `json:"name"`
	Username  string       `json:"preferred_username"`
	Nickname  string       `json:"nickname"`
	SessionID string       `json:"sid"`
	AuthTime  int64        `json:"auth_time"`

	all map[string]json.RawMessage
}

// lenientBool is true in any of the ways that providers write it.
type lenientBool bool

// UnmarshalJSON reads everything that is not true as false.
func (t *lenientBool) UnmarshalJSON(b []byte) error {
	*t = lenientBool(slices.Contains([]string{"true", `"true"`, "1", `"1"`}, strings.ToLower(string(b))))
	return nil
}

// decodeClaims decodes the claims of a token or of userinfo.
func decodeClaims(decode func(any) error) (*personClaims, error) {
	c := &personClaims{}
	if err := decode(c); err != nil {
		return nil, err
	}
	return c, decode(&c.all)
}

// merge adds the claims of more that c lacks.
func (c *personClaims) merge(more *personClaims) {
	if c.Email == "" {
		c.Email, c.Verified, c.Domain = more.Email, more.Verified, more.Domain
	}
	for _, pair := range [][2]*string{{&c.Name, &more.Name}, {&c.Username, &more.Username},
		{&c.Nickname, &more.Nickname}} {
		if *pair[0] == "" {
			*pair[0] = *pair[1]
		}
	}
	for name, value := range more.all {
		if _, exists := c.all[name]; !exists {
			c.all[name] = value
		}
	}
}

func (c *personClaims) authTime() time.Time {
	if c.AuthTime <= 0 {
		return time.Time{}
	}
	return time.Unix(c.AuthTime, 0).UTC()
}

// protocolClaims are claims that are not about the person, or have fields of their own.
var protocolClaims = []string{
	"acr", "amr", "at_hash", "aud", "auth_time", "azp", "c_hash", "email", "email_verified", "exp", "groups",
	"groups_direct", "iat", "iss", "jti", "name", "nbf", "nickname",
	"nonce", "preferred_username", "rh", "s_hash", "sid", "sub", "uti", "xms_edov",
}

// microsoftHosts are the hosts of Microsoft Entra's issuers in all clouds, for tokens of version 1
// and 2.
var microsoftHosts = []string{
	"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn",
	"sts.windows.net", "sts.chinacloudapi.cn",
}

// isVerified reports whether the issuer vouches for the address: by email_verified. Microsoft sends
// none, but xms_edov if an administrator enables it; the claim has no meaning from other issuers.
func (c *personClaims) isVerified(issuer string) bool {
	if c.Verified != nil {
		return bool(*c.Verified)
	}
	u, err := url.Parse(issuer)
	return err == nil && u.Scheme == "https" && slices.Contains(microsoftHosts, u.Host) && bool(c.Domain)
}

// identity returns the person's identity for rules and upstreams. It drops an address that is not
// verified. Too many groups are an error: no group is dropped silently.
func (c *personClaims) identity(issuer, subject string, groups []string) (account.LoginIdentity, error) {
	id := account.LoginIdentity{ProviderUserID: subject, Name: limitText(c.Name),
		Username: cmp.Or(limitText(c.Username), limitText(c.Nickname))}
	if c.isVerified(issuer) {
		id.Email = limitText(c.Email)
	}
	for _, name := range groups {
		if !isTexts(c.all[name]) {
			continue
		}
		list, whole := stringList(c.all[name], maxGroups)
		if !whole {
			return id, fmt.Errorf("the claim %s has more than %d groups, or one of more than %d bytes", name, maxGroups,
				maxText)
		}
		if list != nil {
			id.Groups = list
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		if slices.Contains(protocolClaims, name) || len(name) > maxText || len(id.Attributes) == maxAttributes {
			continue
		}
		if list, whole := stringList(c.all[name], maxValues); whole && list != nil {
			if id.Attributes == nil {
				id.Attributes = map[string][]string{}
			}
			id.Attributes[name] = list
		}
	}
	return id, nil
}

// isTexts reports whether a claim is a text or a list of texts.
func isTexts(raw json.RawMessage) bool {
	var many []string
	return json.Unmarshal(raw, &many) == nil || json.Unmarshal(raw, new(string)) == nil
}

// stringList returns the values of a claim as texts: those of a list, or the one that it is; nil
// for null and the empty text. whole is false when values were dropped because they are too long or
// too many.
func stringList(raw json.RawMessage, limit int) (list []string, whole bool) {
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) != nil {
		many = []json.RawMessage{raw}
		if text := claimText(raw); text == "" {
			return nil, true
		}
	}
	for _, one := range many {
		if text := claimText(one); len(text) <= maxText && len(list) < limit {
			list = append(list, text)
		}
	}
	return list, len(list) == len(many)
}

// claimText returns a text as it is, a number or boolean as it is written, and an object or list as
// compact JSON; "" for null.
func claimText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return ""
	}
	return compact.String()
}

func limitText(s string) string {
	if len(s) > maxText {
		return ""
	}
	return s
}
