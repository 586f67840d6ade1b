// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

// policyField is the name of the field of a traffic policy.
const policyField = "traffic_policy"

// finding is a mistake in a traffic policy. Line is 0 for one without a place.
type finding struct {
	Line, Column int
	Text         string
}

// findingOf returns the finding of a broken rule, without the place that its text begins with.
func findingOf(broken account.FieldError) finding {
	place := fmt.Sprintf("line %d, column %d: ", broken.Line, broken.Column)
	f := finding{broken.Line, broken.Column, sentence(strings.TrimPrefix(broken.Rule, place))}
	if broken.Line == 0 && idPattern.MatchString(broken.Value) {
		f.Text = "“" + broken.Value + "” " + strings.TrimSuffix(broken.Rule, ".") + "."
	}
	return f
}

// policyView is a traffic policy as the form shows it.
type policyView struct {
	Text     string // secrets are marks
	Lines    []policyLine
	Findings []finding
	Checked  bool // Findings are those of Text
	Path     string
	ID       string // the endpoint's; "" for a new one
}

// policyLine is a number beside the text.
type policyLine struct {
	N   int
	Bad bool // a finding is there
}

// The editor shows at least minPolicyLines, and numbers at most maxPolicyLines.
const (
	minPolicyLines = 12
	maxPolicyLines = 5000
)

// Summary tells how many findings there are.
func (p *policyView) Summary() string {
	switch {
	case !p.Checked:
		return ""
	case len(p.Findings) > 0:
		return count(len(p.Findings), "mistake", "mistakes")
	case p.Text == "":
		return "No policy: every request is passed on as it comes."
	}
	return "No mistakes."
}

// Rows is the number of lines of the editor.
func (p *policyView) Rows() int { return len(p.Lines) }

// policies show traffic policies with marks in place of their secrets, and put the secrets back.
type policies struct {
	endpoints account.Endpoints
	redactor  httpkit.Redactor
	checker   account.PolicyChecker // checker is nil where the server runs no policies.
	sealer    Sealer                // sealer is nil where secrets have to be typed again.
}

// mark returns the function that makes marks of secrets. What is a mark already stays.
func (p *policies) mark(accountID string) redact.Mark {
	return func(secret string) string {
		if redact.IsMark(secret) {
			return secret
		}
		return p.redactor.RedactionMark(accountID, secret)
	}
}

// show returns the policy with marks in place of its secrets. A text that is no document is
// returned as it is: it was just typed, and its secrets cannot be told.
func (p *policies) show(c *call, text string) string {
	if !redact.Valid(text) {
		return text
	}
	return redact.Text(text, p.mark(c.AccountID()))
}

// view returns the policy of a draft with its findings, at their places in what is shown.
func (p *policies) view(c *call, d *draft, findings []finding) *policyView {
	whole := d.mine[policyField]
	if d.policy != "" {
		whole = d.policy
	}
	v := &policyView{Text: p.show(c, whole), Path: Path + "endpoints/check", Findings: findings}
	if d.current != nil {
		v.ID = d.current.id
	}
	v.place(whole)
	v.Checked = len(findings) > 0 || c.Request.PostForm.Get("step") == stepCheck
	return v
}

// place moves findings in the text of the policy to their places in what is shown, and numbers the
// lines.
func (p *policyView) place(whole string) {
	if whole != p.Text {
		to := lineMap(whole, p.Text)
		for i := range p.Findings {
			if p.Findings[i].Line > 0 {
				p.Findings[i].Line = to(p.Findings[i].Line)
			}
		}
	}
	for n := range min(max(strings.Count(p.Text, "\n")+2, minPolicyLines), maxPolicyLines) {
		bad := slices.ContainsFunc(p.Findings, func(f finding) bool { return f.Line == n+1 })
		p.Lines = append(p.Lines, policyLine{n + 1, bad})
	}
}

// restoreDraft sets the policy of a draft: what is typed, with the secrets that its marks stand
// for. Secrets that were typed become marks in what pages show. It returns CodeInvalid for a mark
// of no secret.
func (p *policies) restoreDraft(c *call, d *draft) error {
	stored := ""
	if d.current != nil {
		stored = d.current.policy
	}
	whole, err := p.restore(c, d.mine[policyField], stored, d.secrets)
	typed, kept := redact.Secrets(whole), redact.Secrets(stored)
	if err != nil || !redact.Valid(whole) {
		typed = append(typed, d.secrets...)
	}
	d.secrets = slices.DeleteFunc(typed, func(secret string) bool { return slices.Contains(kept, secret) })
	d.policy = whole
	if d.mine[policyField] != "" {
		d.mine[policyField] = p.show(c, whole)
	}
	return err
}

// restore returns a policy with the secrets of stored and more in place of their marks.
func (p *policies) restore(c *call, text, stored string, more []string) (string, error) {
	if len(text) > account.MaxTrafficPolicy {
		return text, nil // it is refused for its size
	}
	whole, err := redact.RestoreWith(text, stored, more, p.mark(c.AccountID()))
	var unknown redact.UnknownMarkError
	switch {
	case errors.As(err, &unknown):
		broken := account.FieldError{Field: policyField, Value: unknown.Mark,
			Rule: unknown.Mark + " stands for a secret that this endpoint does not have; give the secret itself"}
		if i := strings.Index(text, unknown.Mark); i >= 0 {
			broken.Line = strings.Count(text[:i], "\n") + 1
			broken.Column = len([]rune(text[strings.LastIndexByte(text[:i], '\n')+1:i])) + 1
		}
		return text, account.InvalidAll([]account.FieldError{broken})
	case err != nil:
		return text, account.Invalid(policyField, "", "cannot be read: give a YAML or JSON document")
	}
	return whole, nil
}

// check compiles a policy for an endpoint.
func (p *policies) check(text, scheme, binding string) (account.PolicyFacts, error) {
	switch {
	case text == "":
		return account.PolicyFacts{}, nil
	case p.checker == nil:
		return account.PolicyFacts{},
			account.Invalid(policyField, "",
				"this server does not run traffic policies; leave it out, and choose a backend")
	}
	return p.checker(text, scheme, binding)
}

// seal returns secrets that were typed, so that the next form has them and no page shows
// them.
func (p *policies) seal(c *call, secrets []string) (string, error) {
	if len(secrets) == 0 || p.sealer == nil {
		return "", nil
	}
	text, err := json.Marshal(secrets)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(p.sealer.Seal(string(text), secretsOwner(c))), nil
}

// secretsOwner is whom sealed secrets belong to: they are read again for the same key only.
func secretsOwner(c *call) string { return c.AccountID() + " " + c.Key.ID + " typed secrets" }

func (p *policies) unseal(c *call, sealed string) (secrets []string, err error) {
	if sealed == "" || p.sealer == nil {
		return nil, nil
	}
	broken := account.Errorf(account.CodeMalformed,
		"the form cannot be read; open the page again and send it from there")
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, broken
	}
	text, err := p.sealer.Unseal(raw, secretsOwner(c))
	if err != nil || json.Unmarshal([]byte(text), &secrets) != nil {
		return nil, broken
	}
	return secrets, nil
}

// checkTyped answers the script of the editor with the findings of what is typed. It changes
// nothing.
func (p *policies) checkTyped(c *call) error {
	c.ReadOnly = true
	form := c.Request.PostForm
	text := field{Name: policyField, Kind: inputPolicy}.sent(form)
	binding, stored, scheme := form.Get("binding"), "", ""
	if id := form.Get("id"); id != "" {
		e, err := p.endpoints.Endpoint(c.Context(), c.AccountID(), id)
		if err != nil {
			return err
		}
		scheme, binding, stored = e.Scheme, e.Bindings[0], e.TrafficPolicy
	} else if !slices.Contains(account.Bindings(), binding) {
		binding = account.BindingKubernetes
	}
	if u, err := account.ParseBindingURL(binding, strings.TrimSpace(form.Get("url"))); scheme == "" && err == nil {
		scheme = u.Scheme
	}
	typed, err := p.unseal(c, form.Get(secretsInput))
	if err != nil {
		return err
	}
	v := &policyView{Text: text, Checked: true}
	whole, err := p.restore(c, text, stored, typed)
	if err == nil && len(whole) > account.MaxTrafficPolicy {
		err = account.Invalid(policyField, account.NotShown,
			fmt.Sprintf("has %d bytes; at most %d are allowed", len(whole), account.MaxTrafficPolicy))
	}
	if err == nil {
		_, err = p.check(whole, scheme, binding)
	}
	if err != nil {
		problems, ok := problemsOf(err, []field{{Name: policyField}})
		if !ok {
			return err
		}
		v.Findings = problems.findings
	}
	v.place(whole)
	return c.show(http.StatusOK, view{Page: "policy-check", Title: "Mistakes of a traffic policy", Nav: "endpoints",
		Crumb: &link{"Endpoints", Path + "endpoints"}, Data: v})
}
