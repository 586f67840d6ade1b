// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

func (q *request) sessionCookieName() string {
	return trafficpolicy.LoginCookiePrefix + q.action.AuthID
}

// stateNameLen is how much of a flow's state is in the name of its cookie.
const stateNameLen = 8

// flowCookieName is the name of the cookie of a flow; "" for what is no state.
func (q *request) flowCookieName(state string) string {
	if len(state) <= stateNameLen || strings.Trim(state[:stateNameLen], base64URLAlphabet) != "" {
		return ""
	}
	return q.flowCookiePrefix() + state[:stateNameLen]
}

// flowCookiePrefix begins the names of the cookies of flows.
func (q *request) flowCookiePrefix() string { return q.sessionCookieName() + "-" }

const base64URLAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// setCookie sets a cookie that only this host gets, only over TLS, and no script reads. No value
// takes it away.
func (q *request) setCookie(name, value string, life time.Duration) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(life / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(q.w, c)
}
