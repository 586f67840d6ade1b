// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package webpage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static/*
var sharedFiles embed.FS

// Static serves style sheets, scripts and the icon, each under a name that changes with its content,
// so that browsers may keep it. It is safe for concurrent use.
type Static struct {
	prefix string
	byName map[string]staticFile // as asked for: app.0123abcd.css
	names  map[string]string
}

type staticFile struct {
	body        []byte
	contentType string
}

// NewStatic returns the files of the folder static of files, and the shared icon.svg. The shared
// theme precedes app.css. Their paths begin with prefix, "/static/" for example, and Static serves
// the pattern prefix + "{file}". It panics if a file cannot be read: files are part of the program.
func NewStatic(prefix string, files fs.FS) *Static {
	s := &Static{prefix: prefix, byName: map[string]staticFile{}, names: map[string]string{}}
	s.add("icon.svg", mustRead(sharedFiles, "static/icon.svg"))
	all, err := fs.Glob(files, "static/*")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, file := range all {
		name, body := path.Base(file), mustRead(files, file)
		if name == "app.css" {
			body = append(mustRead(sharedFiles, "static/theme.css"), body...)
		}
		s.add(name, body)
	}
	return s
}

func mustRead(files fs.FS, name string) []byte {
	body, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err)
	}
	return body
}

func (s *Static) add(name string, body []byte) {
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	contentType := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}[ext]
	contentType = cmp.Or(contentType, mime.TypeByExtension(ext))
	s.names[name] = strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
	s.byName[s.names[name]] = staticFile{body, contentType}
}

// URL returns the path of the file with the name, "app.css" for example.
func (s *Static) URL(name string) string { return s.prefix + s.names[name] }

func (s *Static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := s.byName[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", found.contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.body))
}
