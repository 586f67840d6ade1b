// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// fail answers a request that got no answer from an upstream.
func (x *exchange) fail(_ http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil || x.body.readFailed() { // the client left, or a policy aborted the request
		x.status = statusClientGone
		panic(http.ErrAbortHandler)
	}
	code := errorCode(err)
	if code == account.CodeUpstreamBroken {
		x.edge.log.Debug("an upstream broke off", "endpoint", x.endpoint.ID, "err", err)
	}
	x.writeError(code, errorMessage(code, x.endpoint))
}

// errorCode says what a request met on its way.
func errorCode(err error) account.Code {
	var refused *tunnel.RefusedError
	switch code := account.CodeOf(err); code {
	case account.CodeNoTarget, account.CodeNoChild, account.CodeNoInternal, account.CodeLoop, account.CodePolicyBroken,
		account.CodeEndpointUnknown, account.CodeUnavailable, account.CodeDenied:
		return code
	}
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return account.CodeAgentSilent
	case errors.As(err, &refused):
		switch refused.Code {
		case tunnel.RefusedUpstream:
			return account.CodeUpstreamUnreachable
		case tunnel.RefusedUnknownEndpoint, tunnel.RefusedOffline, tunnel.RefusedDraining:
			return account.CodeEndpointOffline
		}
		return account.CodeUpstreamBroken
	case account.CodeOf(err) == account.CodeEndpointOffline:
		return account.CodeEndpointOffline
	case errors.Is(err, errAgentTimeout):
		return account.CodeAgentSilent
	}
	return account.CodeUpstreamBroken
}

func errorMessage(code account.Code, ep *account.Endpoint) string {
	url, cloud := ep.URL, ep.Type == account.TypeCloud
	switch code {
	case account.CodeEndpointUnknown:
		return fmt.Sprintf("%s was deleted.", url)
	case account.CodeUnavailable:
		return fmt.Sprintf("The service cannot look up at the moment where %s leads. Try again in a moment.", url)
	case account.CodeNoTarget:
		return fmt.Sprintf(
			"%s has nowhere to send this request: neither a backend, nor a traffic policy that answers or forwards it. Set "+
				"one of them.", url)
	case account.CodeNoChild:
		return fmt.Sprintf(
			"No child of the backend of %s could be reached. Start one of them, or look at what their addresses and agents say.",
			url)
	case account.CodeNoInternal:
		return fmt.Sprintf(
			"The traffic policy of %s forwards to an internal endpoint that does not exist. Make it, or correct the policy.",
			url)
	case account.CodeLoop:
		return fmt.Sprintf(
			"%s forwards from one internal endpoint to the next too often; perhaps in a circle. Correct their traffic policies.",
			url)
	case account.CodePolicyBroken:
		return fmt.Sprintf(
			"The traffic policy of %s cannot be applied, so nothing passes. Set it again: the service says what is wrong "+
				"with it.", url)
	case account.CodeEndpointOffline:
		if cloud {
			return fmt.Sprintf(
				"What %s forwards to is offline: no agent serves it at the moment. Start its agent and try again.", url)
		}
		command := "fairlead http PORT --url " + url
		if len(ep.Bindings) == 1 && ep.Bindings[0] != account.BindingKubernetes {
			command += " --binding " + ep.Bindings[0]
		}
		return fmt.Sprintf("%s is offline: no agent serves it at the moment. Start its agent (%s) and try again.", url,
			command)
	case account.CodeUpstreamUnreachable:
		return fmt.Sprintf(
			"The agent of %s is online, but could not connect to its upstream. Start the upstream, or correct the address "+
				"that the agent was given.", url)
	case account.CodeAgentSilent:
		return fmt.Sprintf("The agent of %s did not answer in time. Look at the agent's machine and its network.", url)
	}
	return fmt.Sprintf(
		"The upstream of %s ended the connection before it had answered, or its answer was not HTTP. The upstream's log "+
			"may say why.", url)
}

// writeError answers with an error of the edge.
func (x *exchange) writeError(code account.Code, msg string) {
	x.writeErrorStatus(code.Status(), code, msg)
}

// writeErrorStatus is writeError with another status than the code's.
func (x *exchange) writeErrorStatus(status int, code account.Code, msg string) {
	x.status, x.code = status, code
	x.setConnectionClose()
	WriteErrorPage(x.w, x.r, x.status, code, msg)
}

// WriteErrorPage answers a request with an error of Fairlead: HTML where the client accepts it,
// else JSON in the form of the API.
func WriteErrorPage(w http.ResponseWriter, r *http.Request, status int, code account.Code, msg string) {
	h := w.Header()
	h.Set(account.CodeHeader, string(code))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
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
