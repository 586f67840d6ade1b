// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
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
	out := struct {
		Tunnels []tunnelJSON `json:"tunnels"`
		URI     string       `json:"uri"`
	}{Tunnels: []tunnelJSON{}, URI: tunnelsPath}
	r := a.recorder
	r.mu.Lock()
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
		out.Tunnels = append(out.Tunnels, t)
	}
	r.mu.Unlock()
	writeJSON(w, http.StatusOK, out)
}

// tunnelName names an endpoint in the API.
func tunnelName(e Endpoint) string {
	if e.Name != "" {
		return e.Name
	}
	return e.ID
}

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
	Caller      *callerJSON `json:"caller,omitempty"`
	FirstByte   int64       `json:"first_byte,omitempty"` // in nanoseconds
	Frames      []frameJSON `json:"frames,omitempty"`
	Dropped     int         `json:"frames_dropped,omitempty"`
	Lost        int64       `json:"lost_bytes,omitempty"`
	NotHTTP     bool        `json:"raw,omitempty"`
	Error       string      `json:"error,omitempty"`
	ReplayOf    string      `json:"replay_of,omitempty"`
	Done        bool        `json:"done"`
}

type callerJSON struct {
	IP             string `json:"ip,omitempty"`
	Pod            string `json:"pod,omitempty"`
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount string `json:"service_account,omitempty"`
	Cluster        string `json:"cluster,omitempty"`
	Person         string `json:"person,omitempty"`
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
		writeError(w, http.StatusBadRequest, "body: must be JSON as in {\"id\": \"…\"}: "+err.Error())
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
		writeError(w, http.StatusBadGateway, err.Error())
	}
}

// exchange returns the form of an exchange, with raw bytes or without.
func (a *api) exchange(e *Exchange, unmasked, whole bool) exchangeJSON {
	out := exchangeJSON{
		URI: requestsPath + "/" + e.ID, ID: e.ID, TunnelName: e.EndpointID, RemoteAddr: e.Caller.IP, Start: e.Start,
		Duration: int64(e.Duration), EndpointID: e.EndpointID, EndpointURL: e.EndpointURL,
		FirstByte: int64(e.FirstByte),
		Dropped:   e.FramesDropped, Lost: e.Lost, NotHTTP: e.Raw, Error: e.Error, ReplayOf: e.ReplayOf, Done: e.Done,
		Request: *messageForm(&e.Request, true, unmasked, whole),
	}
	for _, endpoint := range a.recorder.Endpoints() {
		if endpoint.ID == e.EndpointID {
			out.TunnelName = tunnelName(endpoint)
		}
	}
	if e.Caller != (Caller{}) {
		c := callerJSON(e.Caller)
		out.Caller = &c
	}
	if e.Response != nil {
		out.Response = messageForm(e.Response, false, unmasked, whole)
	}
	if e.Raw && !unmasked { // secrets cannot be told from the rest
		out.Request.Raw = nil
		if out.Response != nil {
			out.Response.Raw = nil
		}
	}
	for _, f := range e.Frames {
		if !unmasked {
			f.Data = MaskBody("", f.Data)
		}
		if whole {
			out.Frames = append(out.Frames, frameJSON{int64(f.At), f.FromClient, f.Kind, f.Size, f.Data})
		}
	}
	return out
}

func messageForm(m *Message, isRequest, unmasked, whole bool) *messageJSON {
	shown := *m
	if !unmasked {
		shown = Mask(m, nil)
	}
	out := &messageJSON{Method: shown.Method, Proto: shown.Proto, Headers: shown.Header, Trailers: shown.Trailer,
		URI: shown.URL, StatusCode: shown.Status, BodySize: shown.BodySize, Truncated: shown.Truncated}
	first := shown.Method + " " + shown.URL + " " + shown.Proto
	if !isRequest {
		out.Status = strings.TrimSpace(strconv.Itoa(shown.Status) + " " + http.StatusText(shown.Status))
		first = shown.Proto + " " + out.Status
	}
	if whole {
		var raw bytes.Buffer
		if shown.Proto != "" { // else there was no header
			raw.WriteString(first + "\r\n")
			_ = shown.Header.Write(&raw)
			raw.WriteString("\r\n")
		}
		raw.Write(shown.Body)
		out.Raw = raw.Bytes()
	}
	return out
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
