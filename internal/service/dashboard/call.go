// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// RefreshHeader is the header by which the page's script reads the page again. Such a request is
// answered with 401 instead of a redirect to the sign-in page, and leaves the notice to the next
// one.
const RefreshHeader = "Fairlead-Refresh"

const maxForm = 64 << 10

// call is one request on its way through the checks.
type call struct {
	httpkit.Call
	server   *server
	notFound *notFoundPage // what the error page of CodeNotFound shows; nil = the error's message
}

// now returns the time of the service's clock.
func (c *call) now() time.Time { return c.server.opt.Clock() }

// setKey sets the key that the call is authenticated with.
func (c *call) setKey(key *account.APIKey) {
	c.Key = key
	c.server.opt.OnAuthenticated(c.Request)
}

// hasScope reports whether the key of the call has one of the scopes, or admin.
func (c *call) hasScope(scopes ...account.Scope) bool { return c.Key.HasAnyScope(scopes...) }

// isRefresh reports whether the page's script reads the page again.
func (c *call) isRefresh() bool { return c.Request.Header.Get(RefreshHeader) != "" }

// ServeHTTP checks in this order: origin (403), sign-in (a redirect to its page), route (404, 405),
// scope (403), draining (503), form (400); the rest is the handler's.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := rt.server
	c := &call{Call: httpkit.NewCall(w, r, s.opt.Clock()), server: s}
	s.calls.Run(&c.Call, rt.pattern, func() error { return rt.handle(c) }, c.showError)
}

func (rt *route) handle(c *call) error {
	s, writes := rt.server, c.Request.Method != http.MethodGet && c.Request.Method != http.MethodHead
	if err := s.origins.Check(c.Request); err != nil || c.Request.TLS != nil && overPlainHTTP(c.Request) {
		return account.Errorf(account.CodeScope,
			"the form was not sent from a page of this dashboard; open the page again and send it from there")
	}
	if !rt.public {
		if err := s.signIns.authenticate(c); err != nil {
			return c.redirectToSignIn(err)
		}
	}
	handle, scopes := rt.get, rt.scopes
	if writes {
		handle, scopes = rt.post, rt.writeScopes
	}
	switch {
	case rt.get == nil && rt.post == nil:
		return account.Errorf(account.CodeNoRoute, "there is no such page")
	case handle == nil || writes && c.Request.Method != http.MethodPost:
		c.Writer.Header().Set("Allow", rt.allowedMethods())
		return account.Errorf(account.CodeMethod, "this page cannot be asked with %s",
			account.Shorten(c.Request.Method))
	case !rt.public && !c.hasScope(scopes...):
		return account.Errorf(account.CodeScope, "this needs an API key with the scope %s; yours has %s",
			httpkit.ScopeAlternatives(scopes),
			httpkit.JoinScopes(c.Key.Scopes, " and "))
	}
	if writes {
		if s.opt.Draining.Load() && !rt.public {
			return account.Errorf(account.CodeUnavailable,
				"the server is about to stop, and changes nothing any more; try again in a moment")
		}
		if err := c.readForm(cmp.Or(rt.maxForm, int64(maxForm))); err != nil {
			return err
		}
	}
	return handle(c)
}

// overPlainHTTP reports whether a form's page was loaded over plain http, where an attacker in the
// network can change it. For browsers that send no Sec-Fetch-Site, http.CrossOriginProtection
// compares only the hosts.
func overPlainHTTP(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http:")
}

func (rt *route) allowedMethods() string {
	var methods []string
	if rt.get != nil {
		methods = append(methods, http.MethodGet)
	}
	if rt.post != nil {
		methods = append(methods, http.MethodPost)
	}
	return strings.Join(methods, ", ")
}

// readForm reads the form that was sent, of at most so many bytes.
func (c *call) readForm(maxBytes int64) error {
	done := c.LimitBody(maxBytes, c.server.opt.Limits.BodyTimeout)
	if err := c.Request.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return account.Errorf(account.CodeTooLarge, "the form has more than %d bytes", maxBytes)
		}
		return account.Errorf(account.CodeMalformed,
			"the form cannot be read; open the page again and send it from there")
	}
	done()
	return nil
}

// parseExpiry returns the end of the lifetime that the form names, and the name.
func (c *call) parseExpiry() (account.ExpiryPatch, string, error) {
	given := c.Request.PostForm.Get("expires")
	for _, l := range lifetimes {
		if l.Value == given && l.Duration > 0 {
			at := c.now().Add(l.Duration)
			return account.ExpiryPatch{Set: true, At: &at}, given, nil
		} else if l.Value == given {
			return account.ExpiryPatch{}, given, nil
		}
	}
	return account.ExpiryPatch{}, "", account.Invalid("expires", account.Shorten(given),
		"choose one of the lifetimes of the form")
}

// finish answers an action with its error, or else as redirect does.
func (c *call) finish(err error, to string, n notice) error {
	if err != nil {
		return err
	}
	return c.redirect(to, n)
}

// redirect answers a form with the path of the next page, which shows the notice once.
func (c *call) redirect(to string, n notice) error {
	if n.Code != "" {
		http.SetCookie(c.Writer, hostCookie(noticeCookie, fmt.Sprintf("%s.%d", n.Code, n.Count), noticeLifetime))
	}
	http.Redirect(c.Writer, c.Request, to, http.StatusSeeOther)
	return nil
}

// redirectToSignIn sends the browser to the sign-in page, which leads back.
func (c *call) redirectToSignIn(err error) error {
	switch account.CodeOf(err) {
	case account.CodeUnknownCredential, account.CodeExpired, account.CodeNoCredential:
	default:
		return err
	}
	if c.isRefresh() || c.Request.Header.Get("Accept") == "text/event-stream" {
		c.Writer.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	to := Path + "sign-in"
	if c.Request.Method == http.MethodGet && c.Request.URL.Path != Path {
		to += "?" + url.Values{"return": {c.Request.URL.RequestURI()}}.Encode()
	}
	http.Redirect(c.Writer, c.Request, to, http.StatusSeeOther)
	return nil
}

// localPath returns the URL, which is a client's, if it is a path of the dashboard, and fallback
// otherwise.
func localPath(given, fallback string) string {
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(u.Path, Path) || strings.Contains(u.Path, "//") ||
		strings.ContainsAny(given, "\\\r\n\t\x00") || strings.Contains(u.Path, "/..") {
		return fallback
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// confirmation is the question that a page asks before an action that cannot be undone.
type confirmation struct {
	Question string
	Facts    []fact
	Effect   string // what the action does
	Action   string // the path of the form
	Verb     string // on the button
	Busy     string // on the button during the action
	Back     string // the path of Cancel
	Return   string // the path of the page after the action; "" = the action's default
	Danger   bool
}

// fact is one line of what the question is about.
type fact struct{ Name, Value string }

// confirm shows the question as a page. The page's script shows its form as a dialog.
func (c *call) confirm(nav string, crumb link, q confirmation) error {
	q.Action = c.Request.URL.Path
	if back := localPath(c.Request.URL.Query().Get("return"), ""); back != "" {
		q.Back, q.Return = back, back
	}
	return c.show(http.StatusOK, view{Page: "confirm", Title: q.Question, Nav: nav, Crumb: &crumb, Data: q})
}

// returnPath returns the page that follows the confirmed action: the page from which the form came,
// or fallback, if that page is not known or its path begins with ended.
func (c *call) returnPath(fallback, ended string) string {
	from := localPath(c.Request.PostForm.Get("return"), fallback)
	if strings.HasPrefix(from, ended) {
		return fallback
	}
	return from
}
