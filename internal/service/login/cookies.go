// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// sessionCookieName returns the name of the cookie of sessions. Browsers send the cookies of a host
// to all of its ports, so that a port but the usual one is part of the name.
func (q *request) sessionCookieName() string {
	name := trafficpolicy.LoginCookiePrefix + q.action.AuthID
	if u, err := url.Parse(q.action.EndpointURL); err == nil && u.Port() != "" && u.Port() != "443" {
		name += "~" + u.Port()
	}
	return name
}

// stateNameLen is the number of characters of a flow's state in the name of its cookie.
const stateNameLen = 8

// flowCookieName returns the name of a flow's cookie; "" for an invalid state.
func (q *request) flowCookieName(state string) string {
	if len(state) <= stateNameLen || strings.Trim(state[:stateNameLen], base64URLAlphabet) != "" {
		return ""
	}
	return q.flowCookiePrefix() + state[:stateNameLen]
}

// flowCookiePrefix begins the names of the cookies of flows.
func (q *request) flowCookiePrefix() string { return q.sessionCookieName() + "-" }

const base64URLAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// setCookie sets a cookie for this host only, Secure and HttpOnly. An empty value deletes it.
func (q *request) setCookie(name, value string, life time.Duration) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(life / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(q.w, c)
}
