// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// ClusterPatch changes a cluster, or describes a new one; nil fields stay.
type ClusterPatch struct {
	Name        *string
	Issuer      *string // DefaultIssuer for a new cluster
	Description *string
	Metadata    *string
	JWKS        *KeySet    // result of ParseKeySet; replaces all keys
	AddJWKS     *KeySet    // likewise; added, or in place of keys with the same kid
	RemoveKeys  []string   // kids, which the cluster must have; applied last
	KeySource   *KeySource // "" = KeysFromCluster; KeysFromIssuer needs no keys
	ClusterUID  *string    // "" = the first that an exporter presents
	// replaces the list: a subject with namespace, ServiceAccount and role of one that is there
	// keeps its id
	Subjects *[]SubjectPatch
}

// SubjectPatch is an entry of ClusterPatch.Subjects, as the API takes it.
type SubjectPatch struct {
	Namespace      string      `json:"namespace"`
	ServiceAccount string      `json:"service_account"`
	Role           SubjectRole `json:"role"`
	ACL            *[]string   `json:"acl,omitempty"` // nil = as it is, for a new subject the role's default
	UID            *string     `json:"uid,omitempty"` // nil = as it is; "" = that of the next token
}

// DefaultForwarderACL is that of a forwarder's subject that names no rule.
func DefaultForwarderACL() ACL { return ACL{"connect:*"} }

// Apply returns c with the patch applied, validated: CodeInvalid lists every broken rule. New
// subjects get an id.
func (p ClusterPatch) Apply(c Cluster, now time.Time) (Cluster, error) {
	set(&c.Name, p.Name)
	set(&c.Issuer, p.Issuer)
	set(&c.Description, p.Description)
	set(&c.Metadata, p.Metadata)
	r := credentialRules(c.Description, c.Metadata)
	if !validLabel(c.Name) {
		r.add("name", c.Name, "must be a DNS label: 1 to 63 characters of a-z, 0-9 and '-', such as prod")
	}
	r.text("issuer", c.Issuer, MaxIssuer)
	if c.Issuer == "" {
		r.add("issuer", "", "must be what the claim iss of the cluster's tokens is, usually "+DefaultIssuer)
	}
	if p.ClusterUID != nil && *p.ClusterUID != "" {
		r.uid("cluster_uid", *p.ClusterUID)
	}
	set(&c.ClusterUID, p.ClusterUID)
	set(&c.KeySource, p.KeySource)
	c.KeySource = cmp.Or(c.KeySource, KeysFromCluster)
	if !slices.Contains(KeySources(), c.KeySource) {
		r.add("key_source", string(c.KeySource), "must be cluster, issuer or manual")
	}
	if u, err := url.Parse(c.Issuer); c.KeySource == KeysFromIssuer && (err != nil || u.Scheme != "https" ||
		u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || c.Issuer == DefaultIssuer) {
		r.add("issuer", c.Issuer, "must be the https URL at which the issuer publishes its keys, as those of EKS, GKE "+
			"and AKS are; for another cluster leave key_source out")
	}
	p.applyKeys(&c, &r)
	p.applySubjects(&c, now, &r)
	return c, r.err()
}

// applyKeys replaces, adds and removes keys.
func (p ClusterPatch) applyKeys(c *Cluster, r *rules) {
	keys := slices.Clone(c.JWKS.Keys)
	if p.JWKS != nil {
		keys = slices.Clone(p.JWKS.Keys)
	}
	if p.AddJWKS != nil {
		for _, added := range p.AddJWKS.Keys {
			keys = slices.DeleteFunc(keys, func(k ClusterKey) bool { return k.KeyID == added.KeyID })
			keys = append(keys, added)
		}
	}
	for _, id := range p.RemoveKeys {
		kept := slices.DeleteFunc(slices.Clone(keys), func(k ClusterKey) bool { return k.KeyID == id })
		if len(kept) == len(keys) {
			r.add("remove_keys", id, "is the kid of no key of the cluster")
		}
		keys = kept
	}
	c.JWKS = KeySet{Keys: keys}
	if len(keys) == 0 && c.KeySource == KeysFromIssuer {
		c.JWKS.Keys = []ClusterKey{} // they are learned with the first token
		return
	}
	*r = append(*r, FieldsOf(c.JWKS.validate())...)
}

// applySubjects replaces the list of subjects.
func (p ClusterPatch) applySubjects(c *Cluster, now time.Time, r *rules) {
	if p.Subjects == nil {
		return
	}
	was := c.Subjects
	c.Subjects = make([]ClusterSubject, 0, len(*p.Subjects))
	if len(*p.Subjects) > MaxClusterSubjects {
		r.add("subjects", "", fmt.Sprintf("has %d subjects; at most %d are allowed", len(*p.Subjects),
			MaxClusterSubjects))
		return
	}
	for i, sp := range *p.Subjects {
		s := ClusterSubject{Namespace: sp.Namespace, ServiceAccount: sp.ServiceAccount, Role: sp.Role, ACL: ACL{}}
		if same := slices.IndexFunc(was, func(o ClusterSubject) bool {
			return o.Claim() == s.Claim() && o.Role == s.Role
		}); same >= 0 {
			s = was[same]
		} else {
			s.ID = NewID(PrefixClusterSubject, now)
		}
		sp.apply(&s, fmt.Sprintf("subjects[%d]", i), r)
		if slices.ContainsFunc(c.Subjects, func(o ClusterSubject) bool { return o.Claim() == s.Claim() }) {
			r.add(fmt.Sprintf("subjects[%d]", i), s.Namespace+"/"+s.ServiceAccount,
				"is given twice; a ServiceAccount has one role")
		}
		c.Subjects = append(c.Subjects, s)
	}
}

// apply applies the rules and the UID of the patch to a subject; field is its place in the patch.
func (p SubjectPatch) apply(s *ClusterSubject, field string, r *rules) {
	if !validLabel(s.Namespace) {
		r.add(field+".namespace", s.Namespace, "must be the name of a Kubernetes namespace: a DNS label")
	}
	if !validSubdomain(s.ServiceAccount) {
		r.add(field+".service_account", s.ServiceAccount,
			"must be the name of a ServiceAccount: a DNS subdomain of at most 253 characters")
	}
	if p.UID != nil && *p.UID != "" {
		r.uid(field+".uid", *p.UID)
	}
	set(&s.UID, p.UID)
	var defaults ACL
	normalise := NormaliseExporterACL
	switch s.Role {
	case RoleExporter:
		defaults = DefaultExporterACL()
	case RoleForwarder:
		defaults, normalise = DefaultForwarderACL(), normaliseForwarderACL
	case RoleOperator:
		if p.ACL != nil && len(*p.ACL) > 0 {
			r.add(field+".acl", (*p.ACL)[0], "an operator has no rules; leave acl out")
		}
		return
	default:
		r.add(field+".role", string(s.Role), "must be operator, forwarder or exporter")
		return
	}
	switch {
	case p.ACL != nil && len(*p.ACL) > 0:
		normal, err := normalise(*p.ACL)
		for _, broken := range FieldsOf(err) {
			broken.Field = field + "." + broken.Field
			*r = append(*r, broken)
		}
		s.ACL = normal
	case p.ACL != nil || len(s.ACL) == 0:
		s.ACL = defaults
	}
}

// normaliseForwarderACL is NormaliseACL for rules connect:<operator id> alone.
func normaliseForwarderACL(acl []string) (ACL, error) {
	return normaliseACL(acl, func(verb, pattern string) (normal, problem string) {
		if verb != "connect" || isURLPattern(pattern) {
			return "", "must be connect:<operator id pattern>, for example connect:*"
		}
		return normaliseRule(verb, pattern)
	})
}
