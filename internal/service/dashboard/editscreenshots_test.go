// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

// editorState is a page that one comes to by typing into a form.
type editorState struct {
	name string
	open func(t *testing.T, b *chromium.Tab, f *fake)
}

// editorStates are the pages of an editor that no address leads to.
func editorStates() []editorState {
	form := func(f *fake) string { return "/ui/endpoints/" + f.endpoints[4].ID + "/edit" }
	submit := func(b *chromium.Tab, what, page string) {
		chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
		b.WaitUntil(what, page)
	}
	replace := func(b *chromium.Tab, from, to string) {
		chromium.Eval[bool](b, fmt.Sprintf("(%[1]s.value = %[1]s.value.replace(%q, %q), "+
			"%[1]s.dispatchEvent(new InputEvent('input', {bubbles: true})), true)", policyText, from, to))
	}
	heading := func(text string) string {
		return "document.querySelector('h1')?.textContent.startsWith('" + text + "')"
	}
	return []editorState{
		{"endpoint-edit-mistakes", func(_ *testing.T, b *chromium.Tab, f *fake) {
			b.Open(form(f))
			replace(b, "type: deny", "type: denyy")
			b.WaitUntil("the finding", findingsCount+" === '1 mistake'")
		}},
		{"endpoint-edit-refused", func(_ *testing.T, b *chromium.Tab, f *fake) {
			b.Open(form(f))
			chromium.Eval[bool](b, "(document.getElementById('description').value = '"+
				strings.Repeat("What customers see ", 14)+"', true)")
			replace(b, "type: deny", "type: denyy")
			submit(b, "the refusal", "document.querySelector('.form-problem')")
		}},
		{"endpoint-review", func(_ *testing.T, b *chromium.Tab, f *fake) {
			b.Open(form(f))
			chromium.Eval[bool](b,
				"(document.getElementById('description').value = 'What customers and partners see', true)")
			replace(b, "@example.com", "@example.org")
			submit(b, "the review", heading("Save these"))
		}},
		{"endpoint-conflict", func(t *testing.T, b *chromium.Tab, f *fake) {
			b.Open(form(f))
			replace(b, "@example.com", "@example.org")
			theirs := strings.Replace(f.endpoints[4].TrafficPolicy, "- type: deny", "- type: deny # staff only", 1)
			before := f.endpoints[4]
			f.patchAsOther(t, before.ID, account.EndpointPatch{TrafficPolicy: &theirs, Metadata: new("team: sales")})
			submit(b, "the conflict", heading("Another has saved"))
			f.patchAsOther(t, before.ID,
				account.EndpointPatch{TrafficPolicy: &before.TrafficPolicy, Metadata: &before.Metadata})
		}},
		{"endpoint-kept", func(_ *testing.T, b *chromium.Tab, f *fake) {
			b.Open(form(f))
			signIns := f.signIns
			f.set(func() { f.signIns = map[string]signedIn{} })
			submit(b, "the sign-in page", "document.querySelector('.kept:not([hidden])')")
			f.set(func() { f.signIns = signIns })
		}},
	}
}
