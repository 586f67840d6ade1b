// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of the audit events of an account about refused tokens: anyone can send such tokens.
const (
	refusalInterval = time.Minute // in the long run
	refusalBurst    = 10
	recordTimeout   = 2 * time.Second
)

// refusals writes refusals to the audit logs of accounts. It is safe for concurrent use.
type refusals struct {
	store account.ClusterTokens
	log   *slog.Logger

	mu       sync.Mutex
	accounts map[string]*accountRefusals // accounts has existing accounts only, by their ids.
}

type accountRefusals struct {
	limit   *rate.Limiter
	skipped int // skipped counts the refusals without an event since the last one.
}

// record writes that the token was refused with err, unless err is one of the store. cluster is nil
// when the token's key is unknown. The token's account must exist.
func (r *refusals) record(ctx context.Context, t *token, cluster *account.Cluster, err error, now time.Time) {
	var refusal *account.Error
	if !errors.As(err, &refusal) {
		return
	}
	switch refusal.Code {
	case account.CodeUnknownCredential, account.CodeUnknownKey, account.CodeExpired, account.CodeScope,
		account.CodeInvalid:
	default:
		return
	}
	skipped, ok := r.allow(t.accountID, now)
	if !ok {
		return
	}
	details := t.details()
	details["reason"] = strings.TrimSuffix(refusal.Msg, ".")
	if skipped > 0 {
		details["skipped"] = strconv.Itoa(skipped)
	}
	objectID := ""
	if cluster != nil {
		objectID, details["cluster"] = cluster.ID, cluster.Name
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	by := account.Caller{AccountID: t.accountID}
	if err := r.store.RecordAudit(ctx, by, account.AuditTokenRefused, objectID, details); err != nil {
		r.log.Warn("a refused token could not be written to the audit log", "account", t.accountID, "err", err)
	}
	r.log.Info("a ServiceAccount token was refused", "account", t.accountID, "cluster", objectID, "code", refusal.Code,
		"reason", refusal.Msg)
}

// allow reports whether an event of the account may be written, and how many were not since the
// last one.
func (r *refusals) allow(accountID string, now time.Time) (skipped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.accounts[accountID]
	if a == nil {
		a = &accountRefusals{limit: rate.NewLimiter(rate.Every(refusalInterval), refusalBurst)}
		r.accounts[accountID] = a
	}
	if !a.limit.AllowN(now, 1) {
		a.skipped++
		return 0, false
	}
	skipped, a.skipped = a.skipped, 0
	return skipped, true
}

// details returns what a token that need not be verified states about itself, shortened.
func (t *token) details() map[string]string {
	k := t.claims.Kubernetes
	details := map[string]string{"key_id": t.keyID, "issuer": t.claims.Issuer, "namespace": k.Namespace,
		"service_account": k.ServiceAccount.Name, "uid": k.ServiceAccount.UID}
	for name, value := range details {
		details[name] = account.Shorten(value)
	}
	maps.DeleteFunc(details, func(_, value string) bool { return value == "" })
	if exp := t.claims.Expiry; exp != nil && *exp >= 0 && *exp <= latestTime {
		details["token_expires"] = exp.Time().UTC().Format(time.RFC3339)
	}
	return details
}
