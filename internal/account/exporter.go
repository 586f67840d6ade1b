// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"slices"
	"strings"
)

// IsExporter reports whether the key is of ScopeExporter.
func (k *APIKey) IsExporter() bool { return slices.Contains(k.Scopes, ScopeExporter) }

// noCluster is the OwnerCluster of keys that belong to no cluster yet. It is no cluster's UID.
const noCluster = "(none)"

// OwnerCluster returns the cluster to whose endpoints the key is restricted; "" = no restriction.
func (k *APIKey) OwnerCluster() string {
	switch {
	case !k.IsExporter():
		return ""
	case k.ClusterUID == "":
		return noCluster
	}
	return k.ClusterUID
}

// TunnelCredential is what a tunnel session is authenticated with: an authtoken, an API key of
// ScopeExporter, or a token of a cluster's forwarder or exporter.
type TunnelCredential struct {
	ID         string
	AccountID  string
	ACL        ACL
	IsAPIKey   bool   // the credential is an exporter's API key
	ClusterUID string // the exporter's cluster; "" = no cluster has presented the key yet

	ServiceAccount ServiceAccountToken // set for a cluster's forwarder or exporter
}

// Noun returns the kind of the credential for messages.
func (c *TunnelCredential) Noun() string {
	switch {
	case c.Use().IsSubject():
		return "subject"
	case c.IsAPIKey:
		return "API key"
	}
	return "authtoken"
}

// String returns the kind and id of the credential for messages.
func (c *TunnelCredential) String() string { return c.Noun() + " " + c.ID }

// TunnelCredential returns the authtoken as credential of tunnel sessions.
func (a *Authtoken) TunnelCredential() *TunnelCredential {
	return &TunnelCredential{ID: a.ID, AccountID: a.AccountID, ACL: a.ACL}
}

// TunnelCredential returns the key as credential of tunnel sessions. CodeScope unless it is of
// ScopeExporter.
func (k *APIKey) TunnelCredential() (*TunnelCredential, error) {
	if !k.IsExporter() {
		return nil, Errorf(CodeScope,
			"this is an API key (%s) with the scope %s; agents and forwarders take an authtoken (%s…), and exporters "+
				"an API key with the scope exporter: fairlead api api-keys create --scope exporter",
			k.ID, joinScopes(k.Scopes), AuthtokenPrefix)
	}
	return &TunnelCredential{ID: k.ID, AccountID: k.AccountID, ACL: k.ACL, IsAPIKey: true, ClusterUID: k.ClusterUID},
		nil
}

func joinScopes(scopes []Scope) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

// TunnelAuthenticator finds the credentials of tunnel sessions.
type TunnelAuthenticator interface {
	ClusterPinner
	// TunnelCredential finds a credential by its secret. Unknown: CodeUnknownCredential; an API key
	// without ScopeExporter: CodeScope; expired: CodeExpired.
	TunnelCredential(ctx context.Context, secret string) (*TunnelCredential, error)
	// LiveTunnelCredentials returns the current state of the credentials for tunnel sessions that
	// still exist, have not expired, and whose token is still admitted.
	LiveTunnelCredentials(ctx context.Context, uses []CredentialUse) (map[CredentialUse]*TunnelCredential, error)
}

// ClusterPinner ties API keys of ScopeExporter, and clusters by their exporters, to the UIDs of
// clusters.
type ClusterPinner interface {
	// PinCluster assigns the API key or subject to the cluster, if it belongs to none yet.
	// CodeScope when it belongs to another.
	PinCluster(ctx context.Context, accountID, keyID, clusterUID string) error
}

// ErrOtherCluster is the refusal of a key or subject that belongs to another cluster than the given
// one.
func ErrOtherCluster(keyID, belongsTo, given string) *Error {
	if (CredentialUse{ID: keyID}).IsSubject() {
		return Errorf(CodeScope,
			"subject %s belongs to cluster %s, and this is cluster %s; make it known with its "+
				"own keys: fairlead api clusters create", keyID, belongsTo, Shorten(given))
	}
	return Errorf(CodeScope,
		"API key %s belongs to cluster %s, and this is cluster %s; make a key for each cluster: fairlead api "+
			"api-keys create --scope exporter --cluster-uid %s", keyID, belongsTo, Shorten(given), Shorten(given))
}

// ErrNoRule is the refusal of something that no rule of the verb admits. whose names the
// credential.
func ErrNoRule(whose, verb, subject string) *Error {
	return Errorf(CodeScope, "%s has no %s rule that admits %s", whose, verb, subject)
}

// CheckForwards returns CodeScope unless rules admit every backend and every internal endpoint that
// a traffic policy forwards to, and the backend of a cloud endpoint, which may be "". whose names
// the credential.
func (a ACL) CheckForwards(whose string, facts PolicyFacts, backendID string) *Error {
	if backendID != "" && !a.MayUseBackend(backendID) {
		return ErrNoRule(whose, "backend", backendID)
	}
	for _, id := range facts.Backends {
		if !a.MayUseBackend(id) {
			return ErrNoRule(whose, "backend", id)
		}
	}
	for _, host := range facts.InternalHosts {
		switch {
		case a.MayForwardInternal(host):
		case host == "*":
			return Errorf(CodeScope, "%s has no rule internal:*, which a forward-internal needs whose url is computed "+
				"for each request", whose)
		default:
			return ErrNoRule(whose, "internal", host)
		}
	}
	return nil
}

// DefaultExporterACL is that of a key of ScopeExporter that names no rule: every object may be
// exported, under every URL, and no backend and no internal endpoint may be reached.
func DefaultExporterACL() ACL { return ACL{"export:*", "bind:*"} }

// applyExporter applies the rules and the cluster of the patch to a key of ScopeExporter.
func (p APIKeyPatch) applyExporter(k *APIKey, r *rules) {
	if p.ACL == nil && len(k.ACL) == 0 || p.ACL != nil && *p.ACL == nil {
		k.ACL = DefaultExporterACL()
	} else if p.ACL != nil {
		normal, err := NormaliseExporterACL(*p.ACL)
		*r = append(*r, FieldsOf(err)...)
		k.ACL = normal
	}
	if p.ClusterUID == nil || *p.ClusterUID == "" || *p.ClusterUID == k.ClusterUID {
		return
	}
	if k.ClusterUID != "" {
		r.add("cluster_uid", *p.ClusterUID,
			"does not change: the key belongs to cluster "+k.ClusterUID+"; make a key for each cluster")
		return
	}
	*r = append(*r, FieldsOf(ValidateClusterUID("cluster_uid", *p.ClusterUID))...)
	k.ClusterUID = *p.ClusterUID
}

// withoutExporter removes the rules and the cluster from a key of other scopes, which cannot have
// them.
func (p APIKeyPatch) withoutExporter(k *APIKey, r *rules) {
	const rule = "only a key with the scope exporter has one; leave it out, or choose that scope"
	if p.ACL != nil && len(*p.ACL) > 0 {
		r.add("acl", strings.Join(*p.ACL, " "), rule)
	}
	if p.ClusterUID != nil && *p.ClusterUID != "" {
		r.add("cluster_uid", *p.ClusterUID, rule)
	}
	k.ACL, k.ClusterUID = ACL{}, ""
}

// NormaliseExporterACL checks the rules of an API key of ScopeExporter and returns them in lower
// case, URLs in their normal form. A rule that could never match anything is refused with
// CodeInvalid, as are rules with which nothing could be bound.
func NormaliseExporterACL(acl []string) (ACL, error) {
	normal, err := normaliseACL(acl, normaliseExporterRule)
	if err == nil && !normal.HasVerb("export") {
		err = Invalid("acl", strings.Join(acl, " "),
			"without an export: rule nothing could be bound; for everything: export:* and bind:*")
	}
	return normal, err
}

func normaliseExporterRule(verb, pattern string) (normal, problem string) {
	if pattern == "" {
		verb = "" // no rule at all
	}
	if verb == "bind" {
		if _, _, isLabel := cutLabelRule(pattern); isLabel {
			return "", "exporters bind URLs and no labels; use bind:<url pattern>, for example bind:http://*.demo"
		}
	}
	pattern = strings.ToLower(pattern)
	fixed := !strings.Contains(pattern, "*")
	switch verb {
	case "export":
		namespace, name, ok := strings.Cut(pattern, "/")
		if fixed && (!ok || namespace == "" || name == "") {
			return "", "names no NAMESPACE/NAME; for all objects of a namespace: export:" + Shorten(pattern) + "/*"
		}
	case "bind":
		return normaliseURLPattern(pattern, parseRuleURL)
	case "backend":
		if fixed && !isBackendID(pattern) {
			return "", "names no backend id; use backend:* or such as backend:bkdfo-…"
		}
	case "internal":
		if fixed && !validInternalHost(pattern) {
			return "", "names no host: give the name alone, without scheme and port, for example internal:api.internal"
		}
	default:
		return "", "must be export:<namespace>/<name>, bind:<url pattern>, backend:<id> or internal:<host>, for " +
			"example export:team-a/*"
	}
	return pattern, ""
}

func isBackendID(id string) bool {
	return slices.ContainsFunc(BackendKinds(), func(k BackendKind) bool { return ValidID(k.IDPrefix(), id) })
}
