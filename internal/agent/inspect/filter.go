// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// List returns the exchanges that f selects, newest first, without bodies and the data of frames.
func (r *Recorder) List(f Filter) []*Exchange {
	var selected []*Exchange
	for _, c := range r.candidates(f.Text != "") {
		if !f.selects(c) {
			continue
		}
		selected = append(selected, c.exchange)
		if f.Limit > 0 && len(selected) == f.Limit {
			break
		}
	}
	return selected
}

// candidate is an exchange with what a search for text needs beside it.
type candidate struct {
	exchange *Exchange
	bodies   [][]byte // parts of bodies, data of frames
}

// candidates returns all exchanges, newest first.
func (r *Recorder) candidates(withBodies bool) []candidate {
	r.refresh()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]candidate, 0, len(r.records))
	for _, x := range slices.Backward(r.records) {
		c := candidate{exchange: x.exchange(false)}
		if withBodies {
			c.bodies = append(c.bodies, x.request.body.join(), x.response.body.join())
			for _, f := range x.frames {
				c.bodies = append(c.bodies, f.Data)
			}
		}
		all = append(all, c)
	}
	return all
}

func (f *Filter) selects(c candidate) bool {
	e := c.exchange
	switch {
	case f.After != "" && e.ID <= f.After, f.Before != "" && e.ID >= f.Before,
		f.Endpoint != "" && f.Endpoint != e.EndpointID && f.Endpoint != e.EndpointURL,
		f.Method != "" && !strings.EqualFold(f.Method, e.Request.Method),
		f.Path != "" && !containsFold(e.Request.URL, f.Path),
		f.Status != "" && !hasStatus(e, f.Status),
		f.Caller != "" && !slices.ContainsFunc(e.Caller.all(), func(s string) bool {
			return containsFold(s, f.Caller)
		}):
		return false
	}
	return f.Text == "" || c.contains(f.Text)
}

func hasStatus(e *Exchange, want string) bool {
	status := 0
	if e.Response != nil {
		status = e.Response.Status
	}
	switch strings.ToLower(want) {
	case "open":
		return !e.Done
	case "failed":
		code, _ := e.GRPCStatus()
		return e.Error != "" || status >= 400 || code > 0
	case "1xx", "2xx", "3xx", "4xx", "5xx":
		return status/100 == int(want[0]-'0')
	}
	return strconv.Itoa(status) == want
}

func (c *Caller) all() []string {
	return []string{c.IP, c.Pod, c.Namespace, c.ServiceAccount, c.Cluster, c.Person}
}

func (c *candidate) contains(text string) bool {
	e := c.exchange
	if containsFold(e.Request.URL, text) || headerContains(e.Request.Header, text) {
		return true
	}
	if e.Response != nil && headerContains(e.Response.Header, text) {
		return true
	}
	lower := []byte(strings.ToLower(text))
	return slices.ContainsFunc(c.bodies, func(b []byte) bool { return bytes.Contains(bytes.ToLower(b), lower) })
}

func headerContains(h http.Header, text string) bool {
	for name, values := range h {
		if containsFold(name, text) ||
			slices.ContainsFunc(values, func(v string) bool { return containsFold(v, text) }) {
			return true
		}
	}
	return false
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}
