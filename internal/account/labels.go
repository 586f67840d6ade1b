// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// LabelledTunnel is an agent's tunnel that belongs to tunnel groups by its labels, not to an
// endpoint by a URL. It lives as long as its session holds it.
type LabelledTunnel struct {
	ID               string            `json:"id"`
	URI              string            `json:"uri"`
	Labels           map[string]string `json:"labels"`
	Metadata         string            `json:"metadata"`
	ForwardsTo       string            `json:"forwards_to"` // the agent's upstream
	UpstreamProtocol string            `json:"upstream_protocol"`
	Region           string            `json:"region"`
	StartedAt        time.Time         `json:"started_at"`
	TunnelSession    Ref               `json:"tunnel_session"`

	AccountID string `json:"-"`
}

// LabelledTunnels reads the labelled tunnels that are online. An empty Labels matches all.
type LabelledTunnels interface {
	LabelledTunnel(ctx context.Context, accountID, id string) (*LabelledTunnel, error)
	ListLabelledTunnels(ctx context.Context, accountID string, labels map[string]string, p Page) (
		page []LabelledTunnel, more bool, err error)
}

// TunnelStarter records labelled tunnels of live sessions. What a session holds ends with
// Binder.EndSession, too.
type TunnelStarter interface {
	// StartTunnel records a tunnel of a live session, of AccountID, TunnelSession, Labels,
	// Metadata, ForwardsTo and UpstreamProtocol of t; the rest is the store's. CodeLimit when the
	// account has too many. It ends the tunnel that resume names; replacedSessionID is the other
	// session that held that one, which has to be closed, or "". A tunnel of the session that has
	// resume.NewHash already is returned as it is: its start was asked twice.
	StartTunnel(ctx context.Context, t LabelledTunnel, resume TunnelResume) (started *LabelledTunnel,
		replacedSessionID string, err error)
	// EndTunnel deletes a tunnel that the session holds. Not held: no-op.
	EndTunnel(ctx context.Context, accountID, id, sessionID string) error
}

// TunnelResume lets an agent's new session replace a tunnel of its previous one.
type TunnelResume struct {
	Secret  string // resume secret of the replaced tunnel, "" for none
	NewHash []byte // HashSecret of the new tunnel's resume secret
}

// Validate checks the fields of a labelled tunnel that its agent sets, and lists every broken rule
// as CodeInvalid.
func (t *LabelledTunnel) Validate() error {
	r, e := rules(FieldsOf(ValidateLabels(t.Labels))), t.Endpoint()
	e.EndpointSettings.validate(&r)
	return r.err()
}

// Endpoint returns the tunnel as an endpoint that is online and has no URL.
func (t *LabelledTunnel) Endpoint() Endpoint {
	return Endpoint{ID: t.ID, AccountID: t.AccountID, Type: TypeAgent, Status: StatusOnline, Region: t.Region,
		TunnelSession: &t.TunnelSession, CreatedAt: t.StartedAt, UpdatedAt: t.StartedAt,
		EndpointSettings: EndpointSettings{Metadata: t.Metadata, UpstreamURL: t.ForwardsTo,
			UpstreamProtocol: t.UpstreamProtocol, HostMode: HostPassthrough}}
}

// ValidateLabels checks the labels of a tunnel or of a tunnel group: 1 to MaxLabels, in characters
// that a rule of an authtoken can hold.
func ValidateLabels(labels map[string]string) error {
	var r rules
	switch n := len(labels); {
	case n == 0:
		r.add("labels", "", "at least one label is required, as in app=api")
	case n > MaxLabels:
		r.add("labels", "", fmt.Sprintf("has %d labels; at most %d are allowed", n, MaxLabels))
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value, shown := labels[key], key+"="+labels[key]
		switch {
		case key == "" || value == "":
			r.add("labels", shown, "neither the label nor its value may be empty")
		case len(key) > MaxLabel || len(value) > MaxLabel:
			r.add("labels", shown, fmt.Sprintf("a label and its value have at most %d bytes each", MaxLabel))
		case !labelText(key) || strings.Contains(key, ":") || !labelText(value):
			r.add("labels", shown, ruleLabel)
		}
	}
	return r.err()
}

const ruleLabel = "only printable ASCII without spaces, quotes, '*', ',' and a further '=' is allowed, and no ':' in " +
	"front of the '='"

// labelText reports whether every character may stand in a label or its value.
func labelText(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`*,="'`, c)
	})
}

// HasLabels reports whether has contains every label of wanted.
func HasLabels(has, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// cutLabelRule splits the pattern of a rule about labels. Others are about URLs: in those a ':'
// comes before any '='.
func cutLabelRule(pattern string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(pattern, "=")
	return key, value, ok && !strings.Contains(key, ":")
}

// brokenLabelRule returns what is wrong with the pattern of a rule about labels, or "".
func brokenLabelRule(key, value string) string {
	star := func(s string) string { return strings.ReplaceAll(s, "*", "") }
	switch {
	case key == "" || value == "":
		return "neither the label nor its value may be empty; \"*\" stands for any"
	case !labelText(star(key)) || !labelText(star(value)):
		return "could never match: in labels " + ruleLabel
	}
	return ""
}
