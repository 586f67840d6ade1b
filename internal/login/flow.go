// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// maxReturnPath keeps cookies within what browsers store. A longer path is forgotten: the login
// ends at /.
const maxReturnPath = 1800

// maxFlowCookie bounds what is opened.
const maxFlowCookie = 4096

// returnPath returns where a login ends: the path and query that were given, when they are of this
// host and no path of a login, else "/".
func returnPath(given string) string {
	switch {
	case len(given) > maxReturnPath, !strings.HasPrefix(given, "/"), strings.HasPrefix(given, "//"),
		strings.HasPrefix(given, `/\`):
		return "/"
	// browsers drop some of these before they read a URL
	case strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "/"
	}
	u, err := url.ParseRequestURI(given)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || isReserved(u.Path) {
		return "/"
	}
	target, _, _ := strings.Cut(given, "#") // a browser keeps its own
	return target
}

// isReserved reports whether a browser may make a path of a login action of a decoded path: it
// takes a backslash for a slash, and removes dots, also those that are percent-encoded.
func isReserved(decoded string) bool {
	seen := (&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: strings.ReplaceAll(decoded, `\`, "/")}).Path
	return strings.HasPrefix("/"+strings.TrimLeft(seen, "/"), strings.TrimSuffix(reserved, "/"))
}

// random returns a text of 256 random bits.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // crypto/rand.Read never returns an error
	return base64.RawURLEncoding.EncodeToString(b)
}

// begin sends the browser to the provider, which has to ask the person when it is for the second
// time or a later one.
func (v *visit) begin(returnTo string, again int) {
	if !v.admitted(PathLogin) {
		return
	}
	f := &Flow{State: random(), Nonce: random(), Verifier: random(), ReturnTo: returnTo, StartedAt: v.now().UTC(),
		ForceReauth: again > 0, Restarts: again}
	ctx, cancel := v.asking()
	defer cancel()
	start, err := v.provider.StartFlow(ctx, f, v.place)
	if err != nil {
		v.fail(err)
		return
	}
	f.RequestID = start.RequestID
	v.dropOldFlows()
	v.setCookie(v.flowCookie(f.State), v.sealFlow(f), flowLife)
	v.redirect(start.URL)
}

// login begins a login that nobody was sent to.
func (v *visit) login() {
	if !isNavigation(v.r) {
		v.page(account.CodeLoginNeeded, "Open this address in a browser.")
		return
	}
	v.begin(returnPath(v.query().Get("return_to")), 0)
}

// query is that of the client.
func (v *visit) query() url.Values {
	_, raw, _ := strings.Cut(trafficpolicy.ClientRequestURI(v.r), "?")
	q, _ := url.ParseQuery(raw) // what is no query has no parameters
	return q
}

// flowOwner ties a flow to its place and provider: at any other its cookie does not open.
func (v *visit) flowOwner() string { return "login\x00" + v.bound() }

func (v *visit) sealFlow(f *Flow) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("login: encoding a flow: %v", err)) // texts and a time always encode
	}
	return base64.RawURLEncoding.EncodeToString(v.opt.Key.Seal(string(text), v.flowOwner()))
}

// openFlow reads the value of a flow's cookie; nil for one that is not ours, of another place, or
// too old.
func (v *visit) openFlow(value string) *Flow {
	if len(value) > maxFlowCookie {
		return nil
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return nil
	}
	text, err := v.opt.Key.Unseal(sealed, v.flowOwner())
	if err != nil {
		return nil
	}
	var f Flow
	if json.Unmarshal([]byte(text), &f) != nil {
		return nil
	}
	if age := v.now().Sub(f.StartedAt); age > flowLife || age < -time.Minute {
		return nil
	}
	return &f
}

// begun is a flow of this browser.
type begun struct {
	cookie string
	flow   *Flow // nil for one that does not open
}

// flows returns the flows that the browser says it has begun here, the oldest first.
func (v *visit) flows() []begun {
	var all []begun
	for _, c := range v.r.Cookies() {
		if strings.HasPrefix(c.Name, v.flowCookies()) && len(c.Name) == len(v.flowCookies())+stateInName {
			all = append(all, begun{c.Name, v.openFlow(c.Value)})
		}
	}
	slices.SortStableFunc(all, func(a, b begun) int {
		switch {
		case a.flow == nil || b.flow == nil:
			return btoi(a.flow != nil) - btoi(b.flow != nil)
		default:
			return a.flow.StartedAt.Compare(b.flow.StartedAt)
		}
	})
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// dropOldFlows makes room for one more.
func (v *visit) dropOldFlows() {
	all := v.flows()
	for i, b := range all {
		if b.flow == nil || i <= len(all)-maxFlows {
			v.setCookie(b.cookie, "", 0)
		}
	}
}

// takeFlow returns the flow of this browser that a provider's answer is for, and ends it: its
// cookie goes. nil when there is none.
func (v *visit) takeFlow(is func(*Flow) bool) *Flow {
	for _, b := range v.flows() {
		if b.flow != nil && is(b.flow) {
			v.setCookie(b.cookie, "", 0)
			return b.flow
		}
	}
	return nil
}

func same(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// notBegun answers a provider's word about a login that this browser has not begun, or begun too
// long ago, or ended already.
func (v *visit) notBegun(what string) {
	v.fail(RefusedError("This login was not begun in this browser, or it has ended. Open "+v.place.EndpointURL+
		" to begin again; your browser has to keep cookies for this site.",
		fmt.Errorf("%s without a login that was begun in this browser: it brought no cookie of one", what)))
}

// request is the client's, with the URL as the client sent it.
func (v *visit) request(r *http.Request) *http.Request {
	u, err := url.ParseRequestURI(trafficpolicy.ClientRequestURI(r))
	if err != nil {
		return r
	}
	r = r.WithContext(r.Context())
	r.URL = u
	return r
}
