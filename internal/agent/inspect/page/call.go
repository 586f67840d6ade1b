// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"crypto/subtle"
	"embed"
	"errors"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

const (
	// maxForm is the most bytes of a form: a body of 1 MiB whose every byte is percent-encoded, and
	// its headers.
	maxForm     = 4 << 20
	formTimeout = 30 * time.Second
)

// problem is an error that a page shows.
type problem struct {
	status int
	title  string
	text   string
}

// Error implements error.
func (p *problem) Error() string { return p.title + ": " + p.text }

// call is one request on its way through the checks.
type call struct {
	w http.ResponseWriter
	r *http.Request
	s *server
}

// handler checks the form of a POST, and shows the error of handle as a page.
func (s *server) handler(handle func(*call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{w, r, s}
		err := c.readForm()
		if err == nil {
			err = handle(c)
		}
		if err != nil {
			s.showError(c, err)
		}
	}
}

// ofExchange returns a handler that gives handle the exchange that the path names.
func (s *server) ofExchange(handle func(*call, *inspect.Exchange) error) func(*call) error {
	return func(c *call) error {
		e, ok := s.opt.Recorder.Get(c.r.PathValue("id"))
		if !ok {
			return &problem{http.StatusNotFound, "Not found",
				"This request is not recorded: it was cleared, made room for newer ones, or the agent has stopped " +
					"since."}
		}
		return handle(c, e)
	}
}

// readForm reads the form of a POST and checks its token.
func (c *call) readForm() error {
	if c.r.Method != http.MethodPost {
		return nil
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(formTimeout)) // a writer without deadlines is a test's
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxForm)
	if err := c.r.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &problem{http.StatusRequestEntityTooLarge, "Too large",
				"The form has more than 4 MiB; send a shorter body."}
		}
		return &problem{http.StatusBadRequest, "Not accepted", "The form cannot be read; open the page again."}
	}
	_ = control.SetReadDeadline(time.Time{})
	if subtle.ConstantTimeCompare([]byte(c.r.PostForm.Get("csrf")), []byte(c.s.token)) != 1 {
		return &problem{http.StatusForbidden, "Not allowed",
			"The form was not made by this agent, or by one that has stopped since; open the page again."}
	}
	return nil
}

// isPost reports whether the call is a form with the right token.
func (c *call) isPost() bool { return c.r.Method == http.MethodPost }

// side returns the message that the path names: request or response.
func (c *call) side(e *inspect.Exchange) (*inspect.Message, error) {
	switch side := c.r.PathValue("side"); {
	case side == requestSide:
		return &e.Request, nil
	case side == responseSide && e.Response != nil:
		return e.Response, nil
	}
	return nil, &problem{http.StatusNotFound, "Not found", "The exchange has no such message."}
}

func (s *server) notFound(*call) error {
	return &problem{http.StatusNotFound, "Not found", "The inspector has no such page."}
}

//go:embed static templates
var files embed.FS

// view is the content of a page.
type view struct {
	Page  string // its template
	Title string
	Live  string // the path of its stream of updates; "" = it has none
	Back  bool   // it leads back to the list
	Data  any
}

// frame is what the layout shows around a view.
type frame struct {
	view
	Token   string
	Version string
	Style   string
	Script  string
	Icon    string
}

// recordedPolicy is for bytes that were recorded, when they are served as a picture or a file.
const recordedPolicy = "default-src 'none'; frame-ancestors 'none'; sandbox"

// show answers with a page.
func (c *call) show(status int, v view) error {
	s := c.s
	return s.pages.Answer(c.w, status, v.Page, frame{view: v, Token: s.token, Version: s.opt.Version,
		Style: s.static.URL("app.css"), Script: s.static.URL("app.js"), Icon: s.static.URL("icon.svg")})
}

// redirect answers a form with the path of the next page.
func (c *call) redirect(to string) error {
	http.Redirect(c.w, c.r, to, http.StatusSeeOther)
	return nil
}

// showError answers with an error page. Errors that are not a problem are only in the log.
func (s *server) showError(c *call, err error) {
	known := &problem{http.StatusInternalServerError, "Something went wrong",
		"This is a mistake of the inspector; the agent's log has the details."}
	if !errors.As(err, &known) {
		s.opt.Logger.Error("showing a page of the inspector", "path", c.r.URL.Path, "error", err)
	}
	c.w.Header().Del("Content-Disposition")
	v := view{Page: "error", Title: known.title, Back: true, Data: known.text}
	if err := c.show(known.status, v); err != nil { // the templates are tested; this is for the one that is not
		http.Error(c.w, known.title, known.status)
	}
}
