// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

const (
	defaultRows = 100
	maxRows     = 500
	maxQuery    = 200 // bytes of one filter
)

// listPage is the data of the list.
type listPage struct {
	Query    listQuery
	Statuses []option
	// Endpoints are those to choose from; none if there is only one.
	Endpoints []option
	Rows      []row
	Count     string
	Dropped   string
	AllPath   string // the path of the list with maxRows; "" = all are shown
	HARPath   string
	Blank     row // the script's template
	// Watched are the endpoints whose requests appear; they are shown while there is none.
	Watched []inspect.Endpoint

	ReloadPath string
}

type option struct {
	Value, Text string
	Selected    bool
}

// row is one exchange in the list. It is comparable, so that a stream sends only what has changed.
type row struct {
	ID       string `json:"id"`
	Path     string `json:"path"` // the page's path
	Time     string `json:"time"`
	Datetime string `json:"datetime"`
	Exact    string `json:"exact"`
	Method   string `json:"method"`
	Target   string `json:"target"`
	Endpoint string `json:"endpoint"`
	Status   string `json:"status"`
	Class    string `json:"class"`
	Words    string `json:"words"`
	Duration string `json:"duration"`
	Size     string `json:"size"`
	Caller   string `json:"caller"`
	Replayed bool   `json:"replayed"`
}

// listQuery is what a list's URL asks for.
type listQuery struct {
	Endpoint, Method, Status, Path, Caller, Text string
	Rows                                         int
}

// listQueryOf reads the query of a URL. What is not understood is left out.
func listQueryOf(q url.Values) listQuery {
	text := func(name string) string {
		given := strings.TrimSpace(strings.ToValidUTF8(q.Get(name), ""))
		return strings.TrimSuffix(shorten(given, maxQuery), "…")
	}
	l := listQuery{Endpoint: text("endpoint"), Method: text("method"), Status: text("status"), Path: text("path"),
		Caller: text("caller"), Text: text("text"), Rows: defaultRows}
	if n, err := strconv.Atoi(q.Get("rows")); err == nil && n > 0 {
		l.Rows = min(n, maxRows)
	}
	if !isStatusFilter(l.Status) {
		l.Status = ""
	}
	return l
}

// isStatusFilter reports whether the text is a status, a class, or a state of an exchange.
func isStatusFilter(text string) bool {
	if slices.Contains([]string{"", "failed", "open"}, text) {
		return true
	}
	if len(text) != 3 || text[0] < '1' || text[0] > '5' {
		return false
	}
	_, err := strconv.Atoi(text)
	return err == nil || text[1:] == "xx"
}

// encode returns the query of a URL that asks for the list, with the number of rows.
func (l listQuery) encode(rows int) string {
	q := url.Values{}
	for name, value := range map[string]string{"endpoint": l.Endpoint, "method": l.Method, "status": l.Status,
		"path": l.Path, "caller": l.Caller, "text": l.Text} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if rows != defaultRows {
		q.Set("rows", strconv.Itoa(rows))
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Filtered reports whether the list leaves exchanges out.
func (l listQuery) Filtered() bool {
	l.Rows = 0
	return l != listQuery{}
}

func (l listQuery) filter(limit int) inspect.Filter {
	return inspect.Filter{Endpoint: l.Endpoint, Method: l.Method, Status: l.Status, Path: l.Path, Caller: l.Caller,
		Text: l.Text, Limit: limit}
}

// rowCache has the rows of exchanges that have not changed since they were made. Its zero value can
// be used.
type rowCache struct{ made map[*inspect.Exchange]row }

// lists are the pages of a list of exchanges.
type lists struct{ recorder Recorder }

// rows returns the rows of a list, newest first, and whether there are more.
func (l *lists) rows(q listQuery, cache *rowCache) (rows []row, more bool) {
	found := l.recorder.List(q.filter(q.Rows + 1))
	more = len(found) > q.Rows
	found = found[:min(len(found), q.Rows)]
	made := make(map[*inspect.Exchange]row, len(found))
	for _, e := range found {
		r, ok := cache.made[e]
		if !ok {
			r = l.rowOf(e)
		}
		made[e] = r
		rows = append(rows, r)
	}
	cache.made = made
	return rows, more
}

func (l *lists) rowOf(e *inspect.Exchange) row {
	start := e.Start.In(time.Local)
	status, class, words := statusOf(e)
	mask := maskerOf(l.recorder, e, false)
	shown := mask.request
	r := row{ID: e.ID, Path: exchangePath(e.ID), Time: start.Format("15:04:05.000"), Datetime: datetime(e.Start),
		Exact: exactTime(e.Start), Method: listText(shown.Method, 20), Target: listText(shown.URL, 300),
		Endpoint: listText(e.EndpointURL, 100), Status: status, Class: class, Words: listText(mask.text(words), 200),
		Caller: listText(callerName(e.Caller), 100), Replayed: e.ReplayOf != ""}
	if r.Method == "" && r.Target == "" {
		r.Target = "Not HTTP"
	}
	if e.Done || e.Duration > 0 {
		r.Duration = formatDuration(e.Duration)
	}
	if e.Response != nil {
		r.Size = formatSize(e.Response.BodySize)
	}
	return r
}

// listText returns a text for a row: in one line, and with what is invisible escaped.
func listText(text string, most int) string { return printable.Escape(shorten(text, most), most+1) }

func exchangePath(id string) string { return "/requests/" + url.PathEscape(id) }

func datetime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// exactTime returns the date and time in the zone of the machine, which is the reader's.
func exactTime(t time.Time) string { return t.In(time.Local).Format("2 Jan 2006, 15:04:05.000 MST") }

func (l *lists) list(c *call) error {
	q := listQueryOf(c.r.URL.Query())
	rows, more := l.rows(q, &rowCache{})
	p := listPage{Query: q, Statuses: statusOptions(q.Status), Endpoints: l.endpointOptions(q.Endpoint),
		Rows: rows, Count: rowCount(len(rows), more),
		Dropped: l.dropped(), HARPath: "/har" + q.encode(defaultRows), ReloadPath: "/" + q.encode(q.Rows),
		Watched: l.recorder.Endpoints()}
	if more && q.Rows < maxRows {
		p.AllPath = "/" + q.encode(maxRows)
	}
	return c.show(http.StatusOK, view{Page: "list", Title: "Requests", Live: "/live" + q.encode(q.Rows), Data: p})
}

// rowCount returns how many requests a list shows.
func rowCount(n int, more bool) string {
	if n == maxRows {
		return "The newest " + strconv.Itoa(n) + " requests, the most that are kept"
	}
	if more {
		return "The newest " + strconv.Itoa(n) + " requests"
	}
	return printable.Count(n, "request", "requests")
}

// dropped returns what the recorder did not record, "" if that is nothing.
func (l *lists) dropped() string {
	n := l.recorder.Dropped()
	if n <= 0 {
		return ""
	}
	return "Not recorded, because the inspector could not keep up: " + formatSize(n) + "."
}

func statusOptions(selected string) []option {
	all := []option{{"", "All", false}, {"2xx", "2xx", false}, {"3xx", "3xx", false}, {"4xx", "4xx", false},
		{"5xx", "5xx", false}, {"failed", "Failed: 4xx, 5xx, broken off", false}, {"open", "Open", false}}
	if !slices.ContainsFunc(all, func(o option) bool { return o.Value == selected }) {
		all = append(all, option{selected, selected, false})
	}
	for i := range all {
		all[i].Selected = all[i].Value == selected
	}
	return all
}

// endpointOptions returns the endpoints that a list can be limited to.
func (l *lists) endpointOptions(selected string) []option {
	all := []option{{Text: "All", Selected: selected == ""}}
	known := selected == ""
	for _, e := range l.recorder.Endpoints() {
		chosen := selected == e.ID || selected == e.URL
		known = known || chosen
		all = append(all, option{e.ID, listText(e.URL, 100), chosen})
	}
	if !known {
		all = append(all, option{selected, listText(selected, 100), true})
	}
	if len(all) < 3 && selected == "" {
		return nil
	}
	return all
}

func (l *lists) clear(c *call) error {
	l.recorder.Clear()
	return c.redirect("/")
}
