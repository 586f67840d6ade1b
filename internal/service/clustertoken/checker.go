// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Checker checks tokens. It is safe for concurrent use.
type Checker struct {
	opt     Options
	refused refusals
}

// Options configure a Checker; all fields but Issuers and Clock are required.
type Options struct {
	Store   account.ClusterTokens
	Issuers *Issuers // Issuers reads the keys that issuers publish; nil = none are read.
	BaseURL string   // BaseURL is the service's, with which audiences begin.
	Logger  *slog.Logger
	Clock   func() time.Time // Clock has the default time.Now.
}

// New returns a Checker.
func New(o Options) *Checker {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	return &Checker{o, refusals{store: o.Store, log: o.Logger, accounts: make(map[string]*accountRefusals)}}
}

// IsToken reports whether a secret has the form of a JSON Web Token, which no API key and no
// authtoken has: it begins with the encoding of "{".
func IsToken(secret string) bool { return strings.HasPrefix(secret, "ey") }

// APIKey returns what a token is for the API. Errors: CodeUnknownCredential; CodeUnknownKey for a
// token of a key that no cluster of the account has; CodeExpired, also for
// a token that is not valid yet; CodeScope for a role that has nothing to do there; errors of the
// store.
func (c *Checker) APIKey(ctx context.Context, raw string) (*account.APIKey, error) {
	return check(ctx, c, raw, (*account.Cluster).APIKey)
}

// TunnelCredential returns what a token is for tunnel sessions. Errors as with APIKey.
func (c *Checker) TunnelCredential(ctx context.Context, raw string) (*account.TunnelCredential, error) {
	return check(ctx, c, raw, (*account.Cluster).TunnelCredential)
}

// check checks a token and returns what convert makes of it.
func check[T any](ctx context.Context, c *Checker, raw string,
	convert func(*account.Cluster, *account.ClusterSubject, account.ServiceAccountToken) (*T, error),
) (*T, error) {
	t, err := parse(raw, c.opt.BaseURL)
	if err != nil {
		return nil, err // which account it is for is not known
	}
	cluster, err := c.clusterOf(ctx, t)
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, account.Errorf(account.CodeUnknownCredential,
			"the token's audience names account %s, which does not exist here", t.accountID)
	}
	var subject *account.ClusterSubject
	var result *T
	if err == nil {
		cluster, subject, err = c.admit(ctx, t, cluster)
	}
	if err == nil {
		result, err = convert(cluster, subject, t.use())
	}
	if err != nil {
		c.refused.record(ctx, t, cluster, err, c.opt.Clock())
		return nil, err
	}
	c.opt.Store.MarkClusterUsed(cluster.ID)
	return result, nil
}

// clusterOf returns the cluster that has the token's key, if need be once its issuer was read.
func (c *Checker) clusterOf(ctx context.Context, t *token) (*account.Cluster, error) {
	cluster, err := c.opt.Store.ClusterByKey(ctx, t.accountID, t.keyID)
	if account.CodeOf(err) != account.CodeUnknownKey || c.opt.Issuers == nil {
		return cluster, err
	}
	read, failure := c.opt.Issuers.readFor(ctx, t, c.opt.Clock())
	switch {
	case failure != nil:
		c.refused.log.Warn("the keys of a token's issuer could not be read", "account", t.accountID,
			"issuer", account.Shorten(t.claims.Issuer), "err", failure)
		return nil, account.Errorf(account.CodeUnknownKey, "no cluster of the account has a key with the kid %q, and "+
			"the keys that the issuer %q publishes could not be read; the server's log says why",
			account.Shorten(t.keyID), account.Shorten(t.claims.Issuer))
	case !read:
		return nil, err
	}
	return c.opt.Store.ClusterByKey(ctx, t.accountID, t.keyID)
}

// admit verifies a token that names a key of the cluster, and returns its subject, and the cluster
// as it is once the subject's UID is pinned.
func (c *Checker) admit(
	ctx context.Context, t *token, cluster *account.Cluster,
) (*account.Cluster, *account.ClusterSubject, error) {
	if err := t.verify(cluster, c.opt.BaseURL, c.opt.Clock()); err != nil {
		return cluster, nil, err
	}
	subject := cluster.SubjectOf(t.claims.Subject)
	if subject == nil {
		return cluster, nil, account.Errorf(account.CodeUnknownCredential,
			"ServiceAccount %[1]s/%[2]s is no subject of cluster %[3]s (%[4]s); add it: fairlead api clusters update "+
				"%[4]s --add-subject ROLE=%[1]s/%[2]s", t.claims.Kubernetes.Namespace,
			t.claims.Kubernetes.ServiceAccount.Name, cluster.Name, cluster.ID)
	}
	uid := t.claims.Kubernetes.ServiceAccount.UID
	switch subject.UID {
	case uid:
		return cluster, subject, nil
	case "":
		pinned, err := c.opt.Store.PinServiceAccount(ctx, t.accountID, subject.ID, uid)
		if err == nil {
			return pinned, pinned.Subject(subject.ID), nil
		}
		if account.CodeOf(err) == account.CodeNotFound {
			err = account.Errorf(account.CodeUnknownCredential, "cluster %s was deleted or changed meanwhile",
				cluster.Name)
		}
		return cluster, nil, err
	}
	return cluster, nil, account.ErrOtherUID(cluster, subject)
}
