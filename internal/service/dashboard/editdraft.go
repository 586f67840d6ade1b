// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Names of hidden inputs of the form of an editor.
const (
	baseInput    = "form_base"    // values that the form showed when it was opened
	versionInput = "form_version" // the object's version then
	secretsInput = "form_secrets" // typed secrets, sealed
	draftInput   = "form_draft"   // typed values, in pages that show them and have no fields for them
	moreInput    = "form_more"    // further rows for children
	accountInput = "form_account" // the ID of the account of the form

	restoredInput = "form_restored" // the page's script sends what was typed before a sign-in
)

// readDraft reads the form that was sent. An object that is gone leaves the draft of a new one.
func (e *editor) readDraft(c *call) (*draft, error) {
	form, gone := c.Request.PostForm, false
	if err := checkFormAccount(c, form); err != nil {
		return nil, err
	}
	base, known := decodeValues(form.Get(baseInput))
	d, err := e.newDraft(c, c.ID())
	if account.CodeOf(err) == account.CodeNotFound && known && form.Has(accountInput) {
		gone = true
		d, err = e.newDraft(c, "")
	}
	if err != nil {
		return nil, err
	}
	if c.ID() != "" {
		version, err := time.Parse(time.RFC3339Nano, form.Get(versionInput))
		if !known || err != nil {
			return nil, account.Errorf(account.CodeMalformed,
				"the form cannot be read; open the page again and send it from there")
		}
		d.base, d.version, d.gone = base, version, gone
	}
	if d.secrets, err = e.policies.unseal(c, form.Get(secretsInput)); err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(form.Get(moreInput)); err == nil && form.Get("step") == stepMore {
		d.more = min(max(n, 0), account.MaxBackendChildren)
	}
	if whole, known := decodeValues(form.Get(draftInput)); known {
		d.mine = whole
		return d, nil
	}
	d.mine = values{}
	for _, f := range d.fields {
		if gone && f.Kind != inputFlag && !form.Has(f.Name) { // a field of the form of a new object
			d.mine[f.Name] = d.base[f.Name]
			continue
		}
		d.mine[f.Name] = keepRaw(f.sent(form), d.base[f.Name])
	}
	return d, nil
}

// checkFormAccount returns CodeScope for a form that was opened with a key of another account: a
// browser may have signed in with another key since.
func checkFormAccount(c *call, form url.Values) error {
	if form.Has(accountInput) && form.Get(accountInput) != c.AccountID() {
		return account.Errorf(account.CodeScope,
			"the form is of another account; sign in with a key of that account, or open the page again")
	}
	return nil
}

// merged returns the values that saving a draft leads to: those that the person has changed, and of
// all others what there is now.
func (d *draft) merged() values {
	all := maps.Clone(d.current.shown)
	for _, f := range d.fields {
		if d.changed(f.Name) {
			all[f.Name] = d.mine[f.Name]
		}
	}
	return all
}

// rebased returns the draft made of the object as it is now.
func (d *draft) rebased() *draft {
	next := *d
	next.mine, next.base, next.version = d.merged(), d.current.shown, d.current.updatedAt
	return &next
}

// encodeValues encodes values for a hidden input, so that browsers and pages change no character of
// them.
func encodeValues(v values) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodeValues(text string) (v values, ok bool) {
	if text == "" {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &v) != nil || v == nil {
		return nil, false
	}
	return v, true
}

func encodeTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
