// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package webpage

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

//go:embed templates/*.html
var sharedTemplates embed.FS

// Templates are pages by their name: each is the layout with the page's own content.
type Templates map[string]*template.Template

// ParseTemplates parses the folder templates of files. layout.html is what every page stands in;
// parts.html and files whose names end in -parts.html define what pages share, to which the template
// "mark" is added; every other file is a page. It panics on a template that does not parse.
func ParseTemplates(files fs.FS, funcs template.FuncMap) Templates {
	base := template.Must(template.New("layout.html").Funcs(funcs).ParseFS(sharedTemplates, "templates/*.html"))
	base = template.Must(base.ParseFS(files, "templates/layout.html", "templates/*parts.html"))
	all, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is ours
	}
	t := Templates{}
	for _, file := range all {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || strings.HasSuffix(name, "parts") {
			continue
		}
		t[name] = template.Must(template.Must(base.Clone()).ParseFS(files, file))
	}
	return t
}

// Answer answers with a page. It is executed as a whole first, so that an error of a template is
// returned before anything is sent, and so that invisible characters are escaped everywhere in it.
func (t Templates) Answer(w http.ResponseWriter, status int, page string, data any) error {
	var b bytes.Buffer
	if err := t[page].ExecuteTemplate(&b, "layout.html", data); err != nil {
		return fmt.Errorf("making the page %s: %w", page, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(printable.EscapeInvisible(b.String()))) // a browser that is gone needs no page
	return nil
}
