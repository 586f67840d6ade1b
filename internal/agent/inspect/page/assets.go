// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
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
var staticFiles embed.FS

// assets are the style sheet, the script and the icon, each under a name that changes with what is
// in it, so that browsers may keep it.
type assets struct {
	byName map[string]asset // as asked for: app.0123abcd.css
	names  map[string]string
}

type asset struct {
	body        []byte
	contentType string
}

func loadAssets() assets {
	a := assets{byName: map[string]asset{}, names: map[string]string{}}
	files, err := fs.Glob(staticFiles, "static/*")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, file := range files {
		body, err := staticFiles.ReadFile(file)
		if err != nil {
			panic(err) // it is part of the program
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(file)
		name := strings.TrimSuffix(path.Base(file), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
			".svg": "image/svg+xml"}[ext]
		if kind == "" {
			kind = mime.TypeByExtension(ext)
		}
		a.byName[name], a.names[path.Base(file)] = asset{body, kind}, name
	}
	return a
}

func (a assets) url(name string) string { return "/static/" + a.names[name] }

func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := a.byName[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", found.contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.body))
}
