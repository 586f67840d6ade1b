// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package keyhandover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
)

const (
	jwksPath    = "/openid/v1/jwks"
	interval    = time.Minute      // between two reads of the keys
	retry       = 10 * time.Second // the same after a failure
	repeat      = 10 * time.Minute // between two handovers without a change: the service may have been restored
	callTimeout = 10 * time.Second
)

// Handover hands over keys while Start runs.
type Handover struct {
	process.EveryReplica
	kube  rest.Interface
	api   *apiclient.Client
	token *serviceaccounttoken.File
	log   logr.Logger

	presented string    // what api authenticates with
	accepted  string    // the token that the service accepted last; "" = none
	keys      []byte    // what was handed over with it
	due       time.Time // when they are handed over again

	mu        sync.Mutex
	condition *metav1.Condition // nil: not known yet
}

// New returns a Handover. The options are of the service's API, without a credential.
func New(
	kubernetes *rest.Config, service apiclient.Options, token *serviceaccounttoken.File, log logr.Logger,
) (*Handover, error) {
	h := &Handover{token: token, log: log}
	service.APIKey = func() (string, error) { return h.presented, nil }
	service.Timeout = callTimeout
	var err error
	if h.api, err = apiclient.New(service); err != nil {
		return nil, fmt.Errorf("preparing the client of the account: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(kubernetes)
	if err != nil {
		return nil, fmt.Errorf("preparing to read the cluster's keys: %w", err)
	}
	h.kube = client.RESTClient()
	return h, nil
}

// Start hands over keys until the context ends. It returns nil.
func (h *Handover) Start(ctx context.Context) error {
	for wait := time.Duration(0); timer.Sleep(ctx, wait*9/10+rand.N(wait/5+1)); {
		wait = interval
		if !h.handOver(ctx) {
			wait = retry
		}
	}
	return nil
}

// Condition returns the condition KeysKnown of the KubernetesOperator, without generation and time;
// nil while it is not known.
func (h *Handover) Condition() *metav1.Condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.condition
}

// setCondition replaces the condition, and logs what is new.
func (h *Handover) setCondition(status metav1.ConditionStatus, reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.condition == nil || h.condition.Message != message {
		h.log.Info(message, "reason", reason)
	}
	h.condition = &metav1.Condition{Type: v1alpha1.ConditionKeysKnown, Status: status, Reason: reason, Message: message}
}

// handOver reads the keys, and hands them over if they, or the token, are new to the service. It
// reports whether the service knows them.
func (h *Handover) handOver(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	keys, err := h.kube.Get().AbsPath(jwksPath).Timeout(callTimeout).DoRaw(ctx)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		h.setCondition(metav1.ConditionFalse, v1alpha1.ReasonKeysUnreadable, fmt.Sprintf("the cluster's keys cannot "+
			"be read, so the service will refuse the pods' tokens when they change: bind the ClusterRole "+
			"system:service-account-issuer-discovery to the manager's ServiceAccount (%v)", err))
		return false
	case err != nil:
		return false // the API server does not answer
	}
	token, err := h.token.Read()
	if err != nil {
		return false // which the file has logged
	}
	if bytes.Equal(keys, h.keys) && token == h.accepted && time.Now().Before(h.due) {
		return true
	}
	result, err := h.present(ctx, token, keys)
	if statusOf(err) == http.StatusUnauthorized && h.accepted != "" && h.accepted != token {
		// The token may be of a new key: the one before it vouches for that.
		result, err = h.present(ctx, h.accepted, keys)
	}
	return h.report(result, err)
}

// present hands over the keys with a token.
func (h *Handover) present(ctx context.Context, token string, keys []byte) (*account.KeyHandover, error) {
	h.presented = token
	result, err := h.api.HandOverKeys(ctx, keys)
	if err == nil {
		h.accepted, h.keys, h.due = token, keys, time.Now().Add(repeat)
	}
	return result, err
}

// report makes the result the condition. An outage changes nothing. It reports whether the service
// knows all keys.
func (h *Handover) report(result *account.KeyHandover, err error) bool {
	switch status := statusOf(err); {
	case err == nil && len(result.Missing) == 0:
		if len(result.Added) > 0 {
			h.log.Info("The service took new keys of this cluster", "cluster", result.ClusterID, "added", result.Added)
		}
		h.setCondition(metav1.ConditionTrue, v1alpha1.ReasonKeysKnown,
			"the service knows the keys with which this cluster signs the pods' tokens")
		return true
	case err == nil:
		h.setCondition(metav1.ConditionFalse, v1alpha1.ReasonKeysMissing, fmt.Sprintf("the service does not know the "+
			"keys %s of this cluster (%s) and takes none from it (key_source is %s); before tokens are signed with "+
			"them: kubectl get --raw %s | fairlead api clusters update %s --add-jwks-file -",
			account.Shorten(strings.Join(result.Missing, ", ")), result.ClusterID, result.KeySource, jwksPath,
			result.ClusterID))
	case status == http.StatusNotFound:
		h.setCondition(metav1.ConditionFalse, v1alpha1.ReasonKeysMissing, "the server takes no keys from clusters: "+
			"update it, or add new keys before tokens are signed with them (fairlead api clusters update)")
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError &&
		status != http.StatusTooManyRequests:
		h.setCondition(metav1.ConditionFalse, v1alpha1.ReasonKeysMissing, fmt.Sprintf("the service does not take the "+
			"cluster's keys: %v; an administrator of the account can add them: kubectl get --raw %s | fairlead api "+
			"clusters update ID --add-jwks-file -", err, jwksPath))
	}
	return false
}

// statusOf returns the HTTP status of the service's refusal; 0 for other errors.
func statusOf(err error) int {
	var refusal *account.Error
	if !errors.As(err, &refusal) || refusal.Code == account.CodeUnreachable || refusal.Code == account.CodeBadAnswer {
		return 0
	}
	return refusal.HTTPStatus()
}
