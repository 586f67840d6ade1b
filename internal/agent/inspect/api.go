// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

const (
	requestsPath = "/api/requests/http"
	tunnelsPath  = "/api/tunnels"
	maxAPIBody   = 4 << 20
	defaultLimit = 50
)

// api serves the JSON API. Its forms are those of other agents with an inspector, so that their
// tools can be used. Secrets are masked unless a request says unmasked=true.
type api struct{ recorder *Recorder }

func (a *api) register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+tunnelsPath, a.tunnels)
	mux.HandleFunc("GET "+tunnelsPath+"/{name}", a.tunnel)
	mux.HandleFunc("GET "+requestsPath, a.list)
	mux.HandleFunc("POST "+requestsPath, a.replay)
	mux.HandleFunc("DELETE "+requestsPath, a.clear)
	mux.HandleFunc("GET "+requestsPath+"/{id}", a.get)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "path "+strconv.Quote(r.URL.Path)+" or method "+r.Method+
			": not offered; see "+
			requestsPath+" and "+tunnelsPath)
	})
}

type tunnelJSON struct {
	Name      string `json:"name"`
	ID        string `json:"ID"`
	URI       string `json:"uri"`
	PublicURL string `json:"public_url"`
	Proto     string `json:"proto"`
	Config    struct {
		Addr    string `json:"addr"`
		Inspect bool   `json:"inspect"`
	} `json:"config"`
	Metrics struct {
		Conns metricJSON `json:"conns"`
		HTTP  metricJSON `json:"http"`
	} `json:"metrics"`
}

type metricJSON struct {
	Count int64  `json:"count"`
	Gauge *int64 `json:"gauge,omitempty"`
}

func (a *api) tunnels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Tunnels []tunnelJSON `json:"tunnels"`
		URI     string       `json:"uri"`
	}{a.online(), tunnelsPath})
}

func (a *api) tunnel(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	for _, t := range a.online() {
		if t.Name == name || t.ID == name {
			writeJSON(w, http.StatusOK, t)
			return
		}
	}
	writeError(w, http.StatusNotFound, "tunnel "+strconv.Quote(name)+": is not online; see "+tunnelsPath)
}

// online returns the endpoints that are online.
func (a *api) online() []tunnelJSON {
	all := []tunnelJSON{}
	r := a.recorder
	r.refresh()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.endpoints {
		if !e.Online {
			continue
		}
		c := *r.countsOf(e.ID)
		t := tunnelJSON{Name: tunnelName(e), ID: e.ID, URI: tunnelsPath + "/" + url.PathEscape(tunnelName(e)),
			PublicURL: e.URL, Proto: "http"}
		if scheme, _, ok := strings.Cut(e.URL, "://"); ok {
			t.Proto = scheme
		}
		t.Config.Addr, t.Config.Inspect = e.Upstream, true
		t.Metrics.Conns, t.Metrics.HTTP = metricJSON{c.conns, &c.open}, metricJSON{Count: c.requests}
		all = append(all, t)
	}
	return all
}

// tunnelName names an endpoint in the API.
func tunnelName(e Endpoint) string { return cmp.Or(e.Name, e.ID) }

type exchangeJSON struct {
	URI        string       `json:"uri"`
	ID         string       `json:"id"`
	TunnelName string       `json:"tunnel_name"`
	RemoteAddr string       `json:"remote_addr"`
	Start      time.Time    `json:"start"`
	Duration   int64        `json:"duration"` // in nanoseconds
	Request    messageJSON  `json:"request"`
	Response   *messageJSON `json:"response,omitempty"`

	// What other agents do not have.
	EndpointID  string      `json:"endpoint_id,omitempty"`
	EndpointURL string      `json:"endpoint_url,omitempty"`
	Caller      *Caller     `json:"caller,omitempty"`
	FirstByte   int64       `json:"first_byte,omitempty"` // in nanoseconds
	Frames      []frameJSON `json:"frames,omitempty"`
	Dropped     int         `json:"frames_dropped,omitempty"`
	Lost        int64       `json:"lost_bytes,omitempty"`
	NotHTTP     bool        `json:"raw,omitempty"`
	Error       string      `json:"error,omitempty"`
	ReplayOf    string      `json:"replay_of,omitempty"`
	Done        bool        `json:"done"`
}

type messageJSON struct {
	Method     string      `json:"method,omitempty"`
	Proto      string      `json:"proto"`
	Headers    http.Header `json:"headers"`
	Trailers   http.Header `json:"trailers,omitempty"`
	URI        string      `json:"uri,omitempty"`
	Status     string      `json:"status,omitempty"`
	StatusCode int         `json:"status_code,omitempty"`
	BodySize   int64       `json:"body_size"`
	Truncated  bool        `json:"truncated,omitempty"`
	Raw        []byte      `json:"raw,omitempty"` // header and body, in base64; only of one exchange
}

type frameJSON struct {
	At         int64  `json:"at"` // in nanoseconds since the start
	FromClient bool   `json:"from_client"`
	Kind       string `json:"kind"`
	Size       int64  `json:"size"`
	Data       []byte `json:"data,omitempty"`
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := Filter{Limit: defaultLimit, Method: q.Get("method"), Status: q.Get("status"), Path: q.Get("path"),
		Caller: q.Get("caller"), Text: q.Get("text"), After: q.Get("after"), Before: q.Get("before")}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			writeError(w, http.StatusBadRequest, "limit "+strconv.Quote(text)+": must be a number from 1")
			return
		}
		f.Limit = n
	}
	out := struct {
		URI      string         `json:"uri"`
		Requests []exchangeJSON `json:"requests"`
		Dropped  int64          `json:"dropped_bytes"`
	}{URI: requestsPath, Requests: []exchangeJSON{}, Dropped: a.recorder.Dropped()}
	if name := q.Get("tunnel_name"); name != "" {
		if f.Endpoint = a.endpointID(name); f.Endpoint == "" {
			writeJSON(w, http.StatusOK, out)
			return
		}
	}
	for _, e := range a.recorder.List(f) {
		out.Requests = append(out.Requests, a.exchange(e, isUnmasked(r), false))
	}
	writeJSON(w, http.StatusOK, out)
}

// endpointID returns the id of the endpoint with this tunnelName, "" if there is none.
func (a *api) endpointID(name string) string {
	for _, e := range a.recorder.Endpoints() {
		if tunnelName(e) == name || e.ID == name {
			return e.ID
		}
	}
	return ""
}

func isUnmasked(r *http.Request) bool { return r.URL.Query().Get("unmasked") == "true" }

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	e, ok := a.recorder.Get(r.PathValue("id"))
	if !ok {
		writeError(w, http.StatusNotFound,
			"request "+strconv.Quote(r.PathValue("id"))+": is not kept any more, or never was")
		return
	}
	writeJSON(w, http.StatusOK, a.exchange(e, isUnmasked(r), true))
}

func (a *api) clear(w http.ResponseWriter, _ *http.Request) {
	a.recorder.Clear()
	w.WriteHeader(http.StatusNoContent)
}

// replayJSON is the body of a replay. What is left out is as it was.
type replayJSON struct {
	ID         string      `json:"id"`
	TunnelName string      `json:"tunnel_name"` // ignored: the request goes where it went before
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Headers    http.Header `json:"headers"`
	Body       *string     `json:"body"`
}

func (a *api) replay(w http.ResponseWriter, r *http.Request) {
	var in replayJSON
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAPIBody))
	if err := d.Decode(&in); err != nil {
		writeError(w, http.StatusBadRequest, "body: must be JSON as in {\"id\": \"…\"}: "+
			printable.DecodeError(err.Error()))
		return
	}
	if in.ID == "" {
		writeError(w, http.StatusBadRequest, "id: is missing; give the id of a request of "+requestsPath)
		return
	}
	c := Change{Method: in.Method, Path: in.Path, Header: in.Headers}
	if in.Body != nil {
		c.Body = []byte(*in.Body)
	}
	id, err := a.recorder.Replay(r.Context(), in.ID, c)
	if id != "" {
		w.Header().Set("Location", requestsPath+"/"+id)
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrNotFound):
		writeError(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ErrInvalid):
		writeError(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, ErrBusy):
		writeError(w, http.StatusTooManyRequests, err.Error())
	default:
		writeError(w, http.StatusBadGateway, a.maskError(id, err))
	}
}

// maskError returns the error of an upstream without the secrets of the exchange, which it may
// repeat.
func (a *api) maskError(id string, err error) string {
	e, ok := a.recorder.Get(id)
	if !ok {
		return "replaying: the upstream did not answer as HTTP says"
	}
	return NewMasker(e, a.recorder.endpoint(e.EndpointID).Marked, false).Text(err.Error())
}

// exchange returns the form of an exchange, with raw bytes or without.
func (a *api) exchange(e *Exchange, unmasked, whole bool) exchangeJSON {
	endpoint := a.recorder.endpoint(e.EndpointID)
	mask := NewMasker(e, endpoint.Marked, unmasked)
	out := exchangeJSON{
		URI: requestsPath + "/" + e.ID, ID: e.ID, TunnelName: tunnelName(endpoint), RemoteAddr: e.Caller.IP,
		Start: e.Start, Duration: int64(e.Duration), EndpointID: e.EndpointID, EndpointURL: e.EndpointURL,
		FirstByte: int64(e.FirstByte), Dropped: e.FramesDropped, Lost: e.Lost, NotHTTP: e.Raw,
		Error: mask.Text(e.Error), ReplayOf: e.ReplayOf, Done: e.Done, Request: messageForm(&mask.Request),
	}
	if e.Caller != (Caller{}) {
		out.Caller = &e.Caller
	}
	if e.Response != nil {
		response := messageForm(mask.Response)
		response.Status = statusText(mask.Response)
		out.Response = &response
	}
	if !whole {
		return out
	}
	if unmasked || !e.Raw { // else secrets cannot be told from the rest
		head := mask.Request.Method + " " + mask.Request.URL + " " + mask.Request.Proto
		out.Request.Raw = rawMessage(head, &mask.Request, mask.WireBody(&e.Request))
		if out.Response != nil {
			head = mask.Response.Proto + " " + out.Response.Status
			out.Response.Raw = rawMessage(head, mask.Response, mask.WireBody(e.Response))
		}
	}
	for _, f := range e.Frames {
		data, _ := mask.Body("", f.Data)
		out.Frames = append(out.Frames, frameJSON{int64(f.At), f.FromClient, f.Kind, f.Size, data})
	}
	return out
}

func messageForm(m *Message) messageJSON {
	return messageJSON{Method: m.Method, Proto: m.Proto, Headers: m.Header, Trailers: m.Trailer, URI: m.URL,
		StatusCode: m.Status, BodySize: m.BodySize, Truncated: m.Truncated}
}

func statusText(m *Message) string {
	return strings.TrimSpace(strconv.Itoa(m.Status) + " " + http.StatusText(m.Status))
}

// rawMessage returns a message as HTTP/1 has it.
func rawMessage(firstLine string, m *Message, body []byte) []byte {
	var raw bytes.Buffer
	if m.Proto != "" { // else there was no header
		raw.WriteString(firstLine + "\r\n")
		_ = m.Header.Write(&raw)
		raw.WriteString("\r\n")
	}
	raw.Write(body)
	return raw.Bytes()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client is gone
}

// writeError writes the error in the form of other agents.
func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"status_code": status, "msg": message})
}
