// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

func (v *visit) sessionCookie() string { return trafficpolicy.LoginCookiePrefix + v.place.AuthID }

// stateInName is how much of a flow's state is in the name of its cookie.
const stateInName = 8

// flowCookie is the name of the cookie of a flow; "" for what is no state.
func (v *visit) flowCookie(state string) string {
	if len(state) <= stateInName || strings.Trim(state[:stateInName], tokenLetters) != "" {
		return ""
	}
	return v.flowCookies() + state[:stateInName]
}

// flowCookies begins the names of the cookies of flows.
func (v *visit) flowCookies() string { return v.sessionCookie() + "-" }

const tokenLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// setCookie sets a cookie that only this host gets, only over TLS, and no script reads. No value
// takes it away.
func (v *visit) setCookie(name, value string, life time.Duration) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(life / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, c)
}
