// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import "github.com/fairlead-dev/fairlead/internal/agent/inspect"

// A masker masks the secrets of one exchange wherever they stand: in its headers and URL, and where
// an upstream repeats them, in bodies, frames and errors.
type masker struct {
	request  inspect.Message
	response *inspect.Message
	mask     inspect.Masker
	reveal   bool
}

// newMasker returns the masker of an exchange. With reveal it masks nothing.
func newMasker(e *inspect.Exchange, marked []string, reveal bool) *masker {
	if reveal {
		return &masker{request: e.Request, response: e.Response, mask: *inspect.NewMasker(e, marked, true),
			reveal: true}
	}
	mask := inspect.NewMasker(e, marked, false)
	return &masker{request: mask.Request, response: mask.Response, mask: *mask}
}

// maskerOf returns the masker of an exchange of a recorder.
func maskerOf(r Recorder, e *inspect.Exchange, reveal bool) *masker {
	return newMasker(e, r.Marked(e.EndpointID), reveal)
}

// text returns the text with its secrets masked.
func (m *masker) text(text string) string { return m.mask.Text(text) }

// body returns the data of a Content-Type with its secrets masked, and reports whether there was
// one: values that the headers have too, and members of JSON and of forms with a secret's name.
func (m *masker) body(contentType string, data []byte) ([]byte, bool) {
	return m.mask.Body(contentType, data)
}

// message returns the masked message of the side.
func (m *masker) message(side string) *inspect.Message {
	if side == requestSide {
		return &m.request
	}
	return m.response
}

func isMasked(shown []string, i int, value string) bool { return i >= len(shown) || shown[i] != value }
