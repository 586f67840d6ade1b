// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
)

// confirmation is the question that a page asks before an action that cannot be undone.
type confirmation struct {
	Question string
	Facts    []fact
	Effect   string // what the action does
	Action   string // the path of the form
	Verb     string // on the button
	Busy     string // on the button during the action
	Back     string // the path of Cancel
	Return   string // the path of the page after the action; "" = the action's default
	Danger   bool
}

// fact is one line of what the question is about.
type fact struct{ Name, Value string }

// confirm shows the question as a page. The page's script shows its form as a dialog.
func (c *call) confirm(nav string, crumb link, q confirmation) error {
	q.Action = c.Request.URL.Path
	if back := localPath(c.Request.URL.Query().Get("return"), ""); back != "" {
		q.Back, q.Return = back, back
	}
	return c.show(http.StatusOK, view{Page: "confirm", Title: q.Question, Nav: nav, Crumb: &crumb, Data: q})
}

// returnPath returns the page that follows the confirmed action: the page from which the form came,
// or fallback, if that page is not known or its path begins with ended.
func (c *call) returnPath(fallback, ended string) string {
	from := localPath(c.Request.PostForm.Get("return"), fallback)
	if strings.HasPrefix(from, ended) {
		return fallback
	}
	return from
}
