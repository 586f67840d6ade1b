// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Limits of clusters, and of the tokens of their ServiceAccounts.
const (
	DefaultMaxClusters = 100 // per account
	MaxClusterKeys     = 16
	MaxClusterSubjects = 32
	MaxIssuer          = 512 // bytes

	// MaxTokenLife is the longest time from iat to exp of a token. API servers issue a token for an
	// hour with 7 more seconds (WarnOnlyBoundTokenExpirationPeriod).
	MaxTokenLife = time.Hour + 7*time.Second
	// TokenGrace is how long after a token's exp ends what was opened with it.
	TokenGrace = time.Minute
)

// DefaultIssuer is the issuer of clusters that were set up without another one.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// Cluster is a Kubernetes cluster some of whose ServiceAccounts an account trusts: their tokens are
// credentials. URI is filled in by the API server.
type Cluster struct {
	ID          string           `json:"id"`
	URI         string           `json:"uri"`
	Name        string           `json:"name"`     // a DNS label, unique in the account
	Issuer      string           `json:"issuer"`   // what the claim iss of its tokens must be
	Audience    string           `json:"audience"` // what the claim aud of its tokens must be; filled in as URI is
	JWKS        KeySet           `json:"jwks"`
	KeySource   KeySource        `json:"key_source"`
	Description string           `json:"description"`
	Metadata    string           `json:"metadata"`
	Subjects    []ClusterSubject `json:"subjects"`
	// the UID of the namespace kube-system of the cluster; "" = the first that an exporter presents
	ClusterUID string     `json:"cluster_uid"`
	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // when one of its tokens was accepted last

	AccountID string `json:"-"`
}

// SubjectRole is what the tokens of a ServiceAccount may do.
type SubjectRole string

// The roles of subjects.
const (
	RoleOperator  SubjectRole = "operator"  // the API, as an API key of ScopeOperator
	RoleForwarder SubjectRole = "forwarder" // tunnel sessions of forwarders
	RoleExporter  SubjectRole = "exporter"  // API and tunnel sessions, as an API key of ScopeExporter
)

// SubjectRoles lists the roles.
func SubjectRoles() []SubjectRole { return []SubjectRole{RoleOperator, RoleForwarder, RoleExporter} }

// ClusterSubject is a ServiceAccount of a cluster.
type ClusterSubject struct {
	ID             string      `json:"id"`
	Namespace      string      `json:"namespace"`
	ServiceAccount string      `json:"service_account"`
	Role           SubjectRole `json:"role"`
	// rules as an API key of ScopeExporter has, of an exporter; connect rules, of a forwarder
	ACL ACL    `json:"acl"`
	UID string `json:"uid"` // UID of the ServiceAccount; "" = that of the first token
}

// Claim returns the claim sub of the ServiceAccount's tokens.
func (s *ClusterSubject) Claim() string {
	return "system:serviceaccount:" + s.Namespace + ":" + s.ServiceAccount
}

// String names the subject in messages.
func (s *ClusterSubject) String() string {
	return "ServiceAccount " + s.Namespace + "/" + s.ServiceAccount
}

// ServiceAccountToken holds the claims of a credential that is a ServiceAccount's token; they bound
// its use. It is zero for other credentials.
type ServiceAccountToken struct {
	KeyID   string // the key that signed it
	UID     string // UID of the ServiceAccount
	Expires int64  // exp, seconds since 1970
}

// Ends returns when sessions and watches of the token end; zero for other credentials.
func (t ServiceAccountToken) Ends() time.Time {
	if t.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(t.Expires, 0).Add(TokenGrace)
}

// CredentialUse is a credential that something open depends on: the id of an API key, authtoken or
// subject, and the token of the latter.
type CredentialUse struct {
	ID    string
	Token ServiceAccountToken
}

// IsSubject reports whether the credential is the subject of a cluster.
func (u CredentialUse) IsSubject() bool { return strings.HasPrefix(u.ID, PrefixClusterSubject+"-") }

// Use returns the key as the credential of its sessions and watches.
func (k *APIKey) Use() CredentialUse { return CredentialUse{k.ID, k.ServiceAccount} }

// Use returns the credential of the sessions that it opens.
func (c *TunnelCredential) Use() CredentialUse { return CredentialUse{c.ID, c.ServiceAccount} }

// Admits reports whether sessions and watches of the token may go on at a time: the cluster still
// has its key, the UID is the subject's, and it has not ended.
func (c *Cluster) Admits(s *ClusterSubject, t ServiceAccountToken, now time.Time) bool {
	return c.JWKS.Key(t.KeyID) != nil && s.UID == t.UID && now.Before(t.Ends())
}

// APIKey returns the API key that a token of the subject stands for. CodeScope for a forwarder.
func (c *Cluster) APIKey(s *ClusterSubject, t ServiceAccountToken) (*APIKey, error) {
	expires := time.Unix(t.Expires, 0).UTC()
	k := &APIKey{ID: s.ID, AccountID: c.AccountID, Description: c.Name + " " + s.String(), ExpiresAt: &expires,
		ServiceAccount: t, CreatedAt: c.CreatedAt, ACL: ACL{}}
	switch s.Role {
	case RoleOperator:
		k.Scopes = []Scope{ScopeOperator}
	case RoleExporter:
		k.Scopes, k.ACL, k.ClusterUID = []Scope{ScopeExporter}, s.ACL, c.ClusterUID
	default:
		return nil, Errorf(CodeScope, "%s (%s) of cluster %s has the role %s, which opens tunnel sessions only; the "+
			"API takes tokens of the roles operator and exporter", s, s.ID, c.Name, s.Role)
	}
	return k, nil
}

// TunnelCredential returns the credential of tunnel sessions that a token of the subject stands
// for. CodeScope for an operator.
func (c *Cluster) TunnelCredential(s *ClusterSubject, t ServiceAccountToken) (*TunnelCredential, error) {
	credential := &TunnelCredential{ID: s.ID, AccountID: c.AccountID, ACL: s.ACL, ServiceAccount: t}
	switch s.Role {
	case RoleForwarder:
	case RoleExporter:
		credential.IsAPIKey, credential.ClusterUID = true, c.ClusterUID
	default:
		return nil, Errorf(CodeScope, "%s (%s) of cluster %s has the role %s, which opens no tunnel sessions; they "+
			"take tokens of the roles forwarder and exporter", s, s.ID, c.Name, s.Role)
	}
	return credential, nil
}

// Subject returns the subject with the id, or nil.
func (c *Cluster) Subject(id string) *ClusterSubject {
	for i := range c.Subjects {
		if c.Subjects[i].ID == id {
			return &c.Subjects[i]
		}
	}
	return nil
}

// SubjectOf returns the subject with the claim sub, or nil.
func (c *Cluster) SubjectOf(claim string) *ClusterSubject {
	for i := range c.Subjects {
		if c.Subjects[i].Claim() == claim {
			return &c.Subjects[i]
		}
	}
	return nil
}

// ErrOtherUID is the refusal of a token whose ServiceAccount was deleted and made again.
func ErrOtherUID(c *Cluster, s *ClusterSubject) *Error {
	return Errorf(CodeUnknownCredential, "the token is of another %s than the one that cluster %s (%s) has presented "+
		"before: it was deleted and made again; to trust the new one: fairlead api clusters update %s --reset-uid "+
		"%s/%s", s, c.Name, c.ID, c.ID, s.Namespace, s.ServiceAccount)
}

// TokenAudience returns the audience that tokens for the account must have at the service with the
// base URL.
func TokenAudience(baseURL, accountID string) string {
	return fmt.Sprintf("%s/accounts/%s", strings.TrimSuffix(baseURL, "/"), accountID)
}

// Clusters stores the clusters of an account.
type Clusters interface {
	// CreateCluster makes a cluster. CodeInvalid; CodeInUse for a name or a key id that another
	// cluster of the account has; CodeLimit when the account has too many.
	CreateCluster(ctx context.Context, by Caller, p ClusterPatch) (*Cluster, error)
	Cluster(ctx context.Context, accountID, id string) (*Cluster, error)
	ListClusters(ctx context.Context, accountID string, p Page) (page []Cluster, more bool, err error)
	// PatchCluster changes a cluster, with errors as CreateCluster. What was opened with tokens of
	// subjects and keys that are no longer there, or of another UID, ends within a second.
	PatchCluster(ctx context.Context, by Caller, id string, p ClusterPatch) (*Cluster, error)
	// DeleteCluster deletes a cluster; sessions and watches of its tokens end within a second.
	DeleteCluster(ctx context.Context, by Caller, id string) error
}

// ClusterKeys receives a cluster's signing keys from the cluster itself.
type ClusterKeys interface {
	// HandOverKeys compares keys with those of the cluster whose operator presents the token, and
	// adds what the cluster lacks unless its KeySource is KeysByHand. CodeScope when the caller is
	// no subject with RoleOperator; CodeUnknownCredential when the token is not admitted any more;
	// CodeInUse for a key of another cluster; CodeInvalid for another key under a known kid, and
	// for too many keys.
	HandOverKeys(ctx context.Context, by Caller, token ServiceAccountToken, keys KeySet) (*KeyHandover, error)
}

// ClusterTokens stores the clusters and subjects that tokens are checked against.
type ClusterTokens interface {
	// ClusterByKey returns the cluster of the account that has a key with the id. CodeNotFound
	// when there is no such account, CodeUnknownKey when it has no such key.
	ClusterByKey(ctx context.Context, accountID, keyID string) (*Cluster, error)
	// PinServiceAccount sets the uid that tokens of a subject must have, if it has none yet, and
	// returns the updated cluster. ErrOtherUID when it has another.
	PinServiceAccount(ctx context.Context, accountID, subjectID, uid string) (*Cluster, error)
	// MarkClusterUsed records that a token of the cluster was accepted. It does not wait for a
	// write.
	MarkClusterUsed(id string)
	// RecordAudit writes an audit event of something that is no change of the store.
	RecordAudit(ctx context.Context, by Caller, what AuditType, objectID string, details map[string]string) error
}

// ValidateServiceAccountUID checks the UID in the claims of a token. Errors are
// CodeUnknownCredential.
func ValidateServiceAccountUID(uid string) error {
	var r rules
	r.uid("uid", uid)
	if len(r) > 0 {
		return Errorf(CodeUnknownCredential,
			"the token's claim kubernetes.io.serviceaccount.uid %q is no Kubernetes uid", Shorten(uid))
	}
	return nil
}
