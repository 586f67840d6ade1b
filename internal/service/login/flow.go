// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
)

// flows keeps the logins under way in cookies of the browser, encrypted. It is safe for concurrent
// use.
type flows struct{ key *seal.Key }

// save sets the cookie of a new flow, after those of old ones were deleted.
func (s flows) save(q *request, f *Flow) {
	s.deleteOld(q)
	text, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("login: encoding a flow: %v", err)) // strings and times always encode
	}
	q.setCookie(q.flowCookieName(f.State), s.seal(string(text), q.flowOwner()), flowLifetime)
}

func (s flows) seal(text, owner string) string {
	return base64.RawURLEncoding.EncodeToString(s.key.Seal(text, owner))
}

// unseal returns a sealed text; "" for one of another owner, and one that is not ours.
func (s flows) unseal(value, owner string) string {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return ""
	}
	text, err := s.key.Unseal(sealed, owner)
	if err != nil {
		return ""
	}
	return text
}

// maxFlowCookie is the length in bytes of the longest cookie of a flow that is read.
const maxFlowCookie = 4096

// open reads the value of a flow's cookie. It returns nil for one that is not ours, of another
// action, or expired.
func (s flows) open(q *request, value string) *Flow {
	var f Flow
	if len(value) > maxFlowCookie || json.Unmarshal([]byte(s.unseal(value, q.flowOwner())), &f) != nil {
		return nil
	}
	if age := time.Since(f.StartedAt); age > flowLifetime || age < -time.Minute {
		return nil
	}
	return &f
}

// storedFlow is a flow that the browser has a cookie of.
type storedFlow struct {
	cookieName string
	flow       *Flow // nil = unreadable
}

// read returns the flows of this action that the browser has cookies of, the oldest first.
func (s flows) read(q *request) []storedFlow {
	var all []storedFlow
	for _, c := range q.r.Cookies() {
		if strings.HasPrefix(c.Name, q.flowCookiePrefix()) && len(c.Name) == len(q.flowCookiePrefix())+stateNameLen {
			all = append(all, storedFlow{c.Name, s.open(q, c.Value)})
		}
	}
	slices.SortStableFunc(all, func(a, b storedFlow) int { return a.startedAt().Compare(b.startedAt()) })
	return all
}

// startedAt returns when the flow began; zero for an unreadable one.
func (f *storedFlow) startedAt() time.Time {
	if f.flow == nil {
		return time.Time{}
	}
	return f.flow.StartedAt
}

// deleteOld deletes unreadable flows, and the oldest ones until one more fits within maxFlows.
func (s flows) deleteOld(q *request) {
	all := s.read(q)
	for i, f := range all {
		if f.flow == nil || i <= len(all)-maxFlows {
			q.setCookie(f.cookieName, "", 0)
		}
	}
}

// consume returns the browser's flow that matches, and deletes its cookie. It returns nil when
// there is none.
func (s flows) consume(q *request, matches func(*Flow) bool) *Flow {
	for _, f := range s.read(q) {
		if f.flow != nil && matches(f.flow) {
			q.setCookie(f.cookieName, "", 0)
			return f.flow
		}
	}
	return nil
}

// maxStatePath is the length in bytes of the longest return path that a state carries: providers
// limit the length of URLs.
const maxStatePath = 256

// stateSuffix returns the return path, encrypted, as the end of a flow's state: the callback has it
// when the browser no longer has the flow's cookie. SAML leaves no room for it.
func (s flows) stateSuffix(q *request, returnTo string) string {
	if _, ok := q.provider.(CallbackProvider); !ok || returnTo == "/" || len(returnTo) > maxStatePath {
		return ""
	}
	return "." + s.seal(returnTo, "return\x00"+q.scope())
}

// returnPath returns the return path that a state carries; "/" if there is none.
func (s flows) returnPath(q *request, state string) string {
	_, suffix, _ := strings.Cut(state, ".")
	return returnPath(s.unseal(suffix, "return\x00"+q.scope()))
}
