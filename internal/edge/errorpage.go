// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
)

// fail answers a request that got no answer from an upstream.
func (x *exchange) fail(_ http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil || x.body.readFailed() { // the client left, or a policy aborted the request
		x.status = statusClientGone
		panic(http.ErrAbortHandler)
	}
	if text := err.Error(); strings.Contains(text, "response headers exceeded") || // HTTP/1's and HTTP/2's
		strings.Contains(text, "header list larger than") {
		err = trafficerror.AnswerErrorf("has a header of more than %d KiB, which is the limit", maxResponseHeader>>10)
	}
	class := trafficerror.Of(err)
	if class.Code == account.CodeUpstreamBroken {
		x.edge.log.Debug("an upstream broke off", "endpoint", x.endpoint.ID, "err", err)
	}
	if class.Code == account.CodeEndpointSealed { // the client's next connection may be sealed
		x.w.Header().Set("Connection", "close")
	}
	x.writeError(class.Code, class.Page(x.endpoint))
}

// writeError answers with an error of the edge.
func (x *exchange) writeError(code account.Code, msg string) {
	x.writeErrorStatus(code.Status(), code, msg)
}

// writeErrorStatus is writeError with another status than the code's.
func (x *exchange) writeErrorStatus(status int, code account.Code, msg string) {
	x.status, x.code, x.record.Status = status, code, status // a gRPC client gets 200
	WriteErrorPage(x.w, x.r, x.status, code, msg)
}

// WriteErrorPage answers a request with an error of Fairlead: a gRPC status where that is the
// request's protocol, HTML where the client accepts it, else JSON in the form of the API.
func WriteErrorPage(w http.ResponseWriter, r *http.Request, status int, code account.Code, msg string) {
	h := w.Header()
	h.Set(account.CodeHeader, string(code))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if trafficerror.SetGRPC(h, r.Header, status, code, msg) {
		w.WriteHeader(http.StatusOK)
		return
	}
	h.Set("Content-Security-Policy", pagePolicy)
	var body []byte
	if wantsHTML(r.Header) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		body = htmlPage(status, code, msg)
	} else {
		h.Set("Content-Type", "application/json")
		body = account.ErrorBody{Code: code, Status: status, Msg: msg}.JSON()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// wantsHTML reports whether the client accepts HTML by name: browsers do, programs rarely.
func wantsHTML(h http.Header) bool {
	for _, v := range h.Values("Accept") {
		for part := range strings.SplitSeq(v, ",") {
			kind, params, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/html", "application/xhtml+xml":
				return !strings.Contains(strings.ReplaceAll(params, " ", "")+";", "q=0;")
			case "application/json":
				return false // named before HTML
			}
		}
	}
	return false
}

const pageStyle = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 40rem; margin: 15vh auto; padding: 0 1.5rem }
code { opacity: .75 }
`

// pagePolicy allows the page its own style and nothing else, and no framing.
var pagePolicy = func() string {
	digest := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Status}} {{.Text}}</title>
<style>` + pageStyle + `</style>
<main>
<h1>{{.Status}} {{.Text}}</h1>
<p>{{.Msg}}{{if .Link}}<a href="{{.Link}}">{{.Link}}</a>{{.More}}{{end}}</p>
<p><code>{{.Code}}</code></p>
</main>
</html>
`))

// linkPrefix precedes an address to open in the sentences of error pages.
const linkPrefix = "Open https://"

// splitLink splits a message around the address that it tells the user to open.
func splitLink(msg string) (before, address, after string) {
	i := strings.Index(msg, linkPrefix)
	if i < 0 {
		return msg, "", ""
	}
	i += len(linkPrefix) - len("https://")
	address, _, _ = strings.Cut(msg[i:], " ")
	address = strings.TrimRight(address, ".,;")
	return msg[:i], address, msg[i+len(address):]
}

func htmlPage(status int, code account.Code, msg string) []byte {
	before, address, after := splitLink(msg)
	var b strings.Builder
	err := pageTemplate.Execute(&b, struct {
		Status                int
		Text, Msg, Link, More string
		Code                  account.Code
	}{status, http.StatusText(status), before, address, after, code})
	if err != nil {
		panic(fmt.Sprintf("edge: rendering an error page: %v", err)) // a fixed template over strings
	}
	return []byte(b.String())
}
