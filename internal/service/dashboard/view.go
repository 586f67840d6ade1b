// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

//go:embed static templates
var files embed.FS

// view is the content of a page.
type view struct {
	Page  string // its template
	Title string
	Nav   string // the item of the menu that it belongs to
	Crumb *link  // the list that it came from
	Live  string // whose changes refresh it: "endpoints", "audit", both with a space between; "" = none
	Poll  bool   // heartbeats refresh it as well, for what changes without an event
	Data  any
}

type link struct{ Text, Href string }

// frame is what the layout shows around a view.
type frame struct {
	view
	SignedIn     bool
	Key          account.APIKey
	Notice       string
	Version      string
	Host         string
	BaseURL      string
	Style, Icon  string
	Script       string
	MayWrite     bool // MayWrite reports the scope admin.
	MayRevoke    bool
	MayRead      bool // more than identities
	GeoIP        bool
	Here         string
	SignInPage   bool
	SignInReturn string
}

// show answers with a page.
func (c *call) show(status int, v view) error {
	s := c.server
	f := frame{view: v, Version: s.opt.Version, Host: strings.TrimPrefix(s.opt.BaseURL, "https://"),
		Here:  c.Request.URL.RequestURI(),
		Style: s.static.URL("app.css"), Script: s.static.URL("app.js"), Icon: s.static.URL("icon.svg"),
		GeoIP:   s.opt.GeoIP,
		BaseURL: s.opt.BaseURL}
	if c.Key != nil {
		f.SignedIn, f.Key = true, *c.Key
		f.MayWrite, f.MayRevoke, f.MayRead = c.hasScope(), c.hasScope(revokeScopes...), c.hasScope(readScopes...)
	}
	if form, ok := v.Data.(signInForm); ok {
		f.SignedIn, f.SignInPage, f.SignInReturn = false, true, form.Return
	}
	if !c.isRefresh() {
		f.Notice = c.consumeNotice()
	}
	return s.pages.Answer(c.Writer, status, v.Page, f)
}

// errorPage is the data of an error page.
type errorPage struct {
	Status    int
	Title     string
	Text      string
	Code      account.Code
	Operation string
	Fields    []account.FieldError
	Retry     bool // trying again may help
	NotFound  *notFoundPage
}

// notFoundPage is what the error page of an object that does not exist shows instead of the error's
// message.
type notFoundPage struct {
	Title, Text string
	At          time.Time // time of the deletion; zero = not known
	Back        link
}

// explainNotFound makes the error page of err show explain's page, if err is CodeNotFound. It
// returns err.
func (c *call) explainNotFound(err error, explain func(*call) *notFoundPage) error {
	if account.CodeOf(err) == account.CodeNotFound {
		c.notFound = explain(c)
	}
	return err
}

// errorTitles are the titles of error pages by status.
var errorTitles = map[int]string{http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed",
	http.StatusMethodNotAllowed: "Not offered", http.StatusConflict: "Not possible now",
	http.StatusServiceUnavailable: "Not available", http.StatusTooManyRequests: "Too much at once",
	http.StatusInternalServerError: "Something went wrong"}

// showError answers with an error page. It shows the message of a domain error; causes, and other
// errors, are only in the log.
func (c *call) showError(err error) {
	known := &account.Error{Code: account.CodeInternal,
		Msg: "This is our mistake; the server's log has the details under the operation's id."}
	errors.As(err, &known)
	f := errorPage{Status: known.Code.Status(), Text: sentence(known.Msg), Code: known.Code, Operation: c.OperationID,
		Fields: known.Fields}
	f.Title = cmp.Or(errorTitles[f.Status], "Not accepted")
	f.Retry = f.Status == http.StatusServiceUnavailable || f.Status == http.StatusTooManyRequests
	if f.Status == http.StatusServiceUnavailable {
		c.Writer.Header().Set("Retry-After", "1")
	}
	if f.Status == http.StatusNotFound && c.notFound != nil {
		f.Title, f.Text, f.NotFound = c.notFound.Title, c.notFound.Text, c.notFound
	}
	v := view{Page: "error", Title: f.Title, Nav: "none", Data: f}
	if f.NotFound != nil {
		v.Nav = identitiesNav
	}
	if err := c.show(f.Status, v); err != nil { // the templates are tested; this is for the one that is not
		http.Error(c.Writer, f.Title, f.Status)
	}
}

// notice is what the next page shows once about the action that led to it.
type notice struct {
	Code  string
	Count int
}

// Codes of notices. Pages show text by the code, never text of the cookie.
const (
	noticeSignedOut        = "signed-out"
	noticeRevokedUser      = "revoked-user"
	noticeRevoked          = "revoked-session"
	noticeSignedOutUser    = "signed-out-user"
	noticeStopped          = "stopped"
	noticeRestarted        = "restarted"
	noticeKeyDeleted       = "key-deleted"
	noticeAuthtokenDeleted = "authtoken-deleted"
	noticeClusterDeleted   = "cluster-deleted"
	noticeEndpointCreated  = "endpoint-created"
	noticeSaved            = "saved"
	noticeEndpointDeleted  = "endpoint-deleted"
	noticeBackendCreated   = "backend-created"
	noticeBackendDeleted   = "backend-deleted"
	noticeLifetime         = 60 // seconds
	maxNoticeInCookie      = 1_000_000
)

var noticeTexts = map[string]string{
	noticeSignedOut:        "You are signed out.",
	noticeRevoked:          "The session has ended.",
	noticeStopped:          "The agent was told to stop.",
	noticeRestarted:        "The agent was told to connect again.",
	noticeKeyDeleted:       "The API key is deleted.",
	noticeAuthtokenDeleted: "The authtoken is deleted.",
	noticeClusterDeleted:   "The cluster is deleted. Its tokens are refused.",
	noticeEndpointCreated:  "The cloud endpoint is made. It serves from now on.",
	noticeSaved:            "The changes are saved. They hold for new connections and requests.",
	noticeEndpointDeleted:  "The endpoint is deleted.",
	noticeBackendCreated:   "The backend is made. Endpoints and other backends can use it.",
	noticeBackendDeleted:   "The backend is deleted.",
}

func (n notice) text() string {
	switch {
	case n.Code == noticeRevokedUser && n.Count == 0:
		return "The identity is revoked. It had no session."
	case n.Code == noticeRevokedUser:
		return "The identity is revoked, and " + count(n.Count, "session has", "sessions have") + " ended."
	case n.Code == noticeSignedOutUser && n.Count == 0:
		return "There was no session to end. The identity stays."
	case n.Code == noticeSignedOutUser:
		return count(n.Count, "session has", "sessions have") + " ended. The identity stays."
	}
	return noticeTexts[n.Code]
}

// hostCookie returns a cookie for the whole host, and for requests of its own pages only.
func hostCookie(name, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
}

func (c *call) consumeNotice() string {
	cookie, err := c.Request.Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(c.Writer, hostCookie(noticeCookie, "", -1))
	code, number, _ := strings.Cut(cookie.Value, ".")
	n := notice{Code: code}
	if _, err := fmt.Sscanf(number, "%d", &n.Count); err != nil || n.Count < 0 || n.Count > maxNoticeInCookie {
		n.Count = 0
	}
	return n.text()
}

// instant is a time and the time of the page that shows it.
type instant struct {
	at, now time.Time
}

// Known reports whether the time is set.
func (i instant) Known() bool { return !i.at.IsZero() }

// Datetime returns the value of a datetime attribute.
func (i instant) Datetime() string { return i.at.UTC().Format(time.RFC3339) }

// Absolute returns the date and time in UTC.
func (i instant) Absolute() string { return i.at.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

// Relative returns how long ago the time is, or in how long; the date after 60 days. app.js formats
// it in the same way.
func (i instant) Relative() string {
	d := i.now.Sub(i.at)
	form := "%d %s ago"
	if d < 0 {
		d, form = -d, "in %d %s"
	}
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf(form, d/time.Minute, "min")
	case d < 48*time.Hour:
		return fmt.Sprintf(form, d/time.Hour, "h")
	case d < 60*24*time.Hour:
		return fmt.Sprintf(form, d/(24*time.Hour), "days")
	}
	return i.at.UTC().Format("2 Jan 2006")
}
