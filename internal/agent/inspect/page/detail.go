// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// revealAll is the value of the form field that shows every secret of a page.
const revealAll = "all"

// maxHeaders is how many header fields of one message a page shows at most.
const maxHeaders = 200

// detailPage is the data of the page of one exchange.
type detailPage struct {
	ID, Path  string
	Class     string
	Outcome   string // status and words
	Facts     []fact
	Error     string
	Lost      string
	Raw       bool
	Done      bool
	Revealed  bool // every secret is shown
	HasSecret bool
	Timing    []span
	Sides     []side
	Frames    *framesView
	Replay    bool // it can be replayed
}

// fact is one line of what is known; Path is of the page that it leads to.
type fact struct{ Name, Value, Path string }

// side is a message of the exchange.
type side struct {
	Name     string // request or response
	Title    string
	Line     string // the first line
	Size     string
	Headers  []headerRow
	Trailers []headerRow
	More     int // headers that are not shown
	Body     content
	Hidden   bool // the bytes are shown only when asked for
	Path     string
	HasBody  bool // some of it was recorded
	Empty    bool // it has no body
}

// headerTable is a table of fields.
type headerTable struct {
	Caption string
	Rows    []headerRow
}

// HeaderTable returns the table of the headers.
func (v side) HeaderTable() headerTable { return headerTable{v.Title + " headers", v.Headers} }

// TrailerTable returns the table of the trailers.
func (v side) TrailerTable() headerTable { return headerTable{v.Title + " trailers", v.Trailers} }

// headerRow is one field of a header.
type headerRow struct {
	Name, Value string
	Reveal      string // what the form asks for to show it; "" = it is shown
}

// span is a part of the time that an exchange took. Begin and Width are in thousandths of it.
type span struct {
	Name, Text   string
	Begin, Width int
}

// details are the pages of one exchange.
type details struct{ recorder Recorder }

func (d *details) detail(c *call, e *inspect.Exchange) error { return d.show(c, e, nil) }

// reveal shows the page with the secrets that the form asks for.
func (d *details) reveal(c *call, e *inspect.Exchange) error {
	return d.show(c, e, c.r.PostForm["reveal"])
}

func (d *details) show(c *call, e *inspect.Exchange, reveal []string) error {
	p, title := d.pageOf(e, reveal)
	v := view{Page: "detail", Title: title, Back: true, Data: p}
	if !e.Done && !c.isPost() {
		v.Live = p.Path + "/live"
	}
	return c.show(http.StatusOK, v)
}

// pageOf returns the page of an exchange and its title. reveal are the secrets to show, as in
// headerRow.Reveal, or revealAll.
func (d *details) pageOf(e *inspect.Exchange, reveal []string) (detailPage, string) {
	all := slices.Contains(reveal, revealAll)
	mask := maskerOf(d.recorder, e, all)
	p := detailPage{ID: e.ID, Path: exchangePath(e.ID), Error: sentence(mask.text(e.Error)), Raw: e.Raw, Done: e.Done,
		Revealed: all, Timing: spansOf(e), Replay: e.Done && !e.Raw && e.Request.Method != ""}
	p.Class, p.Outcome = outcomeOf(e)
	p.Outcome = mask.text(p.Outcome)
	p.Facts = factsOf(e)
	if e.Lost > 0 {
		p.Lost = formatSize(e.Lost) + " of it were not recorded, because the inspector could not keep up."
	}
	p.Sides = append(p.Sides, sideOf(e, requestSide, mask, reveal))
	if e.Response != nil {
		p.Sides = append(p.Sides, sideOf(e, responseSide, mask, reveal))
	}
	p.Frames = framesOf(e, mask)
	for _, one := range p.Sides {
		for _, h := range slices.Concat(one.Headers, one.Trailers) {
			p.HasSecret = p.HasSecret || h.Reveal != ""
		}
		p.HasSecret = p.HasSecret || one.Body.Masked || one.Hidden
	}
	p.HasSecret = p.HasSecret || mask.request.URL != e.Request.URL || p.Frames != nil && p.Frames.Masked
	title := shorten(mask.request.Method+" "+mask.request.URL, 300)
	if e.Raw || e.Request.Method == "" {
		title = "Bytes that are not HTTP"
	}
	return p, title
}

// outcomeOf returns the class of an exchange's status, and the status with what it means.
func outcomeOf(e *inspect.Exchange) (class, phrase string) {
	status, class, words := statusOf(e)
	switch {
	case words == "":
		return class, status
	case strings.ContainsAny(status, "0123456789"):
		return class, status + " " + words
	}
	return class, words
}

func factsOf(e *inspect.Exchange) []fact {
	facts := []fact{{"Endpoint", e.EndpointURL, ""}, {"Began", exactTime(e.Start), ""}}
	for _, f := range []fact{
		{"Person", e.Caller.Person, ""}, {"Namespace", e.Caller.Namespace, ""}, {"Pod", e.Caller.Pod, ""},
		{"ServiceAccount", e.Caller.ServiceAccount, ""}, {"Cluster", e.Caller.Cluster, ""},
		{"IP address", e.Caller.IP, ""},
	} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	if e.ReplayOf != "" {
		facts = append(facts, fact{"Replay of", e.ReplayOf, exchangePath(e.ReplayOf)})
	}
	return append(facts, fact{"ID", e.ID, ""})
}

// spansOf returns where the time went.
func spansOf(e *inspect.Exchange) []span {
	total := e.Duration
	if total <= 0 {
		return nil
	}
	rest, sum := "Until its end", "Total"
	if !e.Done {
		rest, sum = "Since then", "So far"
	}
	first := min(e.FirstByte, total)
	if first <= 0 {
		return []span{{sum, formatDuration(total), 0, 1000}}
	}
	share := int(first * 1000 / total)
	return []span{
		{"Until the answer’s first byte", formatDuration(first), 0, max(share, 2)},
		{rest, formatDuration(total - first), min(share, 998), max(1000-share, 2)},
		{sum, formatDuration(total), 0, 1000},
	}
}

// sideOf returns one message of an exchange as the page shows it.
func sideOf(e *inspect.Exchange, name string, mask *masker, reveal []string) side {
	m, shown := &e.Request, mask.message(name)
	v := side{Name: name, Title: "Request", Path: exchangePath(e.ID) + "/" + name}
	if name == responseSide {
		m, v.Title = e.Response, "Response"
		v.Line = m.Proto + " " + strconv.Itoa(m.Status) + " " + http.StatusText(m.Status)
	} else {
		v.Line = shown.Method + " " + shorten(shown.URL, 8<<10) + " " + m.Proto
	}
	v.Size, v.HasBody, v.Empty = formatSize(m.BodySize), len(m.Body) > 0, m.BodySize == 0 && len(m.Body) == 0
	v.Headers, v.More = headerRows(name, m.Header, shown.Header, reveal)
	v.Trailers, _ = headerRows(name+"-trailer", m.Trailer, shown.Trailer, reveal)
	if e.Raw {
		v.Line = ""
		if v.Hidden = v.HasBody && !mask.reveal; v.Hidden {
			return v
		}
	}
	v.Body = renderBody(m, mask, v.Title+" body", v.Path+"/image")
	return v
}

// headerRows returns the fields of a header in the order of their names, masked unless reveal has
// them, and how many fields were left out.
func headerRows(kind string, given, masked http.Header, reveal []string) (rows []headerRow, more int) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for i, value := range given[name] {
			if len(rows) == maxHeaders {
				more++
				continue
			}
			r := headerRow{Name: name, Value: value}
			ask := kind + "/" + textproto.CanonicalMIMEHeaderKey(name)
			if isMasked(masked[name], i, value) && !slices.Contains(reveal, ask) {
				r.Reveal, r.Value = ask, inspect.Masked
				if i < len(masked[name]) {
					r.Value = masked[name][i]
				}
			}
			r.Name, r.Value = shorten(r.Name, 200), shorten(r.Value, maxValue)
			rows = append(rows, r)
		}
	}
	return rows, more
}

// maxFrames is the most frames that a page shows, the latest ones.
const maxFrames = 200

// maxFrameData is the most bytes that a page shows of a frame.
const maxFrameData = 4 << 10

// framesView is the data of a page's frames.
type framesView struct {
	Rows   []frameRow
	Note   string
	Masked bool
}

// frameRow is one frame.
type frameRow struct {
	Number int
	At     string
	From   string
	Kind   string
	Size   string
	Text   string
	Cut    bool
}

// framesOf returns the frames of an exchange; nil if it has none.
func framesOf(e *inspect.Exchange, mask *masker) *framesView {
	if len(e.Frames) == 0 {
		return nil
	}
	v, first := &framesView{}, max(0, len(e.Frames)-maxFrames)
	for i, f := range e.Frames[first:] {
		r := frameRow{Number: e.FramesDropped + first + i + 1, At: formatDuration(f.At), From: "upstream",
			Kind: f.Kind, Size: formatSize(f.Size), Cut: f.Size > int64(len(f.Data))}
		if f.At <= time.Duration(0) {
			r.At = "0 ms"
		}
		if f.FromClient {
			r.From = "caller"
		}
		var hidden bool
		r.Text, hidden = frameText(f, mask)
		v.Masked = v.Masked || hidden
		if len(r.Text) > maxFrameData {
			r.Text, r.Cut = shorten(r.Text, maxFrameData), true
		}
		v.Rows = append(v.Rows, r)
	}
	if before := first + e.FramesDropped; before > 0 {
		v.Note = "The first " + printable.Count(before, "frame is", "frames are") + " not shown."
	}
	return v
}

// frameText returns the data of a frame as text, in hexadecimal if it is none, and reports whether
// there was a secret in it.
func frameText(f inspect.Frame, mask *masker) (text string, hidden bool) {
	data, hidden := mask.body(frameType(f), f.Data)
	if text, ok := textOf(data, "", "", f.Size > int64(len(f.Data))); ok {
		return text, hidden
	}
	return hexDump(data[:min(len(data), maxFrameData/5)]), hidden
}

// frameType returns the Content-Type that a frame would have.
func frameType(f inspect.Frame) string {
	if looksLikeJSON(string(f.Data), "") {
		return "application/json"
	}
	return "text/plain"
}
