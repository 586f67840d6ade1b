// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"embed"
	"errors"
	"net/http"
)

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
