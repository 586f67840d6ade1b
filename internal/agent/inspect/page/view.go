// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

//go:embed templates/*.html
var templateFiles embed.FS

// pages are the templates by the name of the page.
type pages map[string]*template.Template

// parsePages parses the templates: each page is the layout with its own content.
func parsePages() pages {
	base := template.Must(template.New("layout.html").
		ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is ours
	}
	all := pages{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, file))
	}
	return all
}

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

// show answers with a page. It is executed as a whole first, so that an error of a template does
// not send half a page, and so that invisible characters are escaped everywhere in it.
func (c *call) show(status int, v view) error {
	s := c.s
	f := frame{view: v, Token: s.token, Version: s.opt.Version, Style: s.assets.url("app.css"),
		Script: s.assets.url("app.js"), Icon: s.assets.url("icon.svg")}
	var page bytes.Buffer
	if err := s.pages[v.Page].ExecuteTemplate(&page, "layout.html", f); err != nil {
		return fmt.Errorf("making the page %s: %w", v.Page, err)
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write([]byte(printable.EscapeInvisible(page.String()))) // a browser that is gone needs no page
	return nil
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
