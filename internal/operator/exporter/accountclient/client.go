// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accountclient bounds what an exporter asks of the account's API: the rate of its calls,
// the duration of each, and how often a service is tried that does not answer.
//
// What comes in: the API's client, and the calls of internal/operator/exporter/cloudendpoint,
// internal/operator/exporter/serviceexport and internal/operator/exporter/orphans. What goes out:
// their results and, after a failure, the delay of the next attempt and the sentence for a status.
// While the service does not answer, calls fail at once, so that one dead service does not occupy
// every worker for the time-out of each object.
package accountclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
)

const (
	// The service admits 100 calls a second of one key, in bursts of 200 (docs/reference/api): 1,000
	// exports are created in 13 s. Services before, and two exporters with one key, as while one
	// release replaces another, may refuse calls: then the rate is halved, down to leastRate.
	callRate  = 70
	callBurst = 100
	leastRate = 20

	callTimeout = 10 * time.Second
	listTimeout = time.Minute // for all pages

	// minPause and maxPause bound the time for which no call is made after one was not answered.
	minPause = time.Second
	maxPause = 15 * time.Second

	// firstRetry is the first delay of a Backoff.
	firstRetry = 2 * time.Second
	// UnansweredRetry bounds the delay of a Backoff after a call that was not answered.
	UnansweredRetry = 10 * time.Second

	// maxFields is how many refused fields a message names.
	maxFields = 3
)

// API are the calls; *apiclient.Client has them.
type API interface {
	Endpoints
	Endpoint(ctx context.Context, id string) (*account.Endpoint, error)
}

// Endpoints are the account's endpoints, as the exporter may see and change them.
type Endpoints interface {
	ListEndpoints(ctx context.Context, f account.EndpointFilter) (*apiclient.EndpointSnapshot, error)
	CreateEndpoint(ctx context.Context, e account.Endpoint) (*account.Endpoint, error)
	PatchEndpoint(ctx context.Context, id string, p account.EndpointPatch, owner *account.Owner) (
		*account.Endpoint, error)
	DeleteEndpoint(ctx context.Context, id string) error
}

// Replica is this exporter among those of the cluster.
type Replica interface {
	// Cluster returns the UID of the cluster: that of its namespace kube-system. It is known once the
	// replica leads.
	Cluster() string
	// Leading reports whether this replica holds the Lease.
	Leading() bool
}

// Client is an API with bounds. It is safe for concurrent use.
type Client struct {
	api     API
	limiter *rate.Limiter

	mu      sync.Mutex
	pause   time.Duration // the last one; 0 after an answer
	retryAt time.Time
	failure error // why there are no calls before retryAt
}

// New returns a Client of the API.
func New(api API) *Client { return &Client{api: api, limiter: rate.NewLimiter(callRate, callBurst)} }

// Endpoint reads an endpoint.
func (c *Client) Endpoint(ctx context.Context, id string) (*account.Endpoint, error) {
	return call(ctx, c, callTimeout, func(ctx context.Context) (*account.Endpoint, error) {
		return c.api.Endpoint(ctx, id)
	})
}

// ListEndpoints reads a whole list, or fails.
func (c *Client) ListEndpoints(ctx context.Context, f account.EndpointFilter) (*apiclient.EndpointSnapshot, error) {
	return call(ctx, c, listTimeout, func(ctx context.Context) (*apiclient.EndpointSnapshot, error) {
		return c.api.ListEndpoints(ctx, f)
	})
}

// CreateEndpoint creates an endpoint of type cloud.
func (c *Client) CreateEndpoint(ctx context.Context, e account.Endpoint) (*account.Endpoint, error) {
	return call(ctx, c, callTimeout, func(ctx context.Context) (*account.Endpoint, error) {
		return c.api.CreateEndpoint(ctx, e)
	})
}

// PatchEndpoint changes an endpoint of type cloud.
func (c *Client) PatchEndpoint(
	ctx context.Context, id string, p account.EndpointPatch, owner *account.Owner,
) (*account.Endpoint, error) {
	return call(ctx, c, callTimeout, func(ctx context.Context) (*account.Endpoint, error) {
		return c.api.PatchEndpoint(ctx, id, p, owner)
	})
}

// DeleteEndpoint deletes an endpoint.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	_, err := call(ctx, c, callTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.api.DeleteEndpoint(ctx, id)
	})
	return err
}

// call makes a call within the limits.
func call[T any](
	ctx context.Context, c *Client, timeout time.Duration, do func(context.Context) (T, error),
) (result T, err error) {
	if err := c.paused(time.Now()); err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.limiter.Wait(ctx); err != nil {
		return result, fmt.Errorf("waiting to call the account's API: %w", err)
	}
	if err := c.paused(time.Now()); err != nil { // since the wait began
		return result, err
	}
	result, err = do(ctx)
	c.note(ctx, err, time.Now())
	return result, err
}

// paused returns the failure after which there are no calls yet; nil when there may be.
func (c *Client) paused(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.retryAt) {
		return c.failure
	}
	return nil
}

// note remembers whether the service answered.
func (c *Client) note(ctx context.Context, err error, now time.Time) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the exporter stops
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !isOutage(err):
		c.pause, c.failure, c.retryAt = 0, nil, time.Time{}
	case now.Before(c.retryAt): // another call, which began before
	default:
		c.pause = min(max(2*c.pause, minPause), maxPause)
		c.failure = err
		if account.CodeOf(err) == account.CodeTooMany {
			c.limiter.SetLimit(max(c.limiter.Limit()/2, leastRate))
		}
		c.retryAt = now.Add(max(c.pause*3/4+rand.N(c.pause/2), retryAfter(err)))
	}
}

// isOutage reports whether other calls would fail likewise. An answer that is not the service's is
// none: what filters requests on the way may refuse one policy's text.
func isOutage(err error) bool {
	switch account.CodeOf(err) {
	case account.CodeUnreachable, account.CodeUnavailable, account.CodeTooMany:
		return true
	}
	return false
}

// Unanswered reports whether a call failed without the service having decided on it, so that it is
// to be repeated.
func Unanswered(err error) bool {
	switch account.CodeOf(err) {
	case account.CodeBadAnswer, account.CodeInternal: // the service failed, or it is no *account.Error
		return true
	}
	return isOutage(err)
}

// retryAfter returns how long the service asked to wait.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*account.Error](err); ok {
		if seconds, err := strconv.Atoi(e.Details["retry_after"]); err == nil {
			return min(time.Duration(seconds)*time.Second, time.Minute)
		}
	}
	return 0
}

// Backoff delays the next attempts for objects whose call failed. It is safe for concurrent use.
type Backoff struct{ delays *flowcontrol.Backoff }

// NewBackoff returns a Backoff whose delays grow up to last.
func NewBackoff(last time.Duration) Backoff {
	return Backoff{flowcontrol.NewBackOffWithJitter(firstRetry, last, 0.2)}
}

// Delay returns how long the next attempt for the object waits.
func (b Backoff) Delay(object types.NamespacedName, err error) time.Duration {
	b.delays.Next(object.String(), b.delays.Clock.Now())
	wait := b.delays.Get(object.String())
	if Unanswered(err) {
		wait = min(wait, UnansweredRetry)
	}
	return wait
}

// Forget makes the object's next delay the first one.
func (b Backoff) Forget(object types.NamespacedName) { b.delays.DeleteEntry(object.String()) }

// Message returns the service's sentence about a call that it refused. rename returns the object's
// name of a field.
func Message(err error, rename func(field string) string) string {
	e, ok := errors.AsType[*account.Error](err)
	if !ok || len(e.Fields) == 0 || e.Error() != err.Error() { // a wrapped one says more
		return err.Error()
	}
	var texts []string
	for _, f := range e.Fields[:min(len(e.Fields), maxFields)] {
		f.Field = rename(f.Field)
		texts = append(texts, f.String())
	}
	if more := len(e.Fields) - maxFields; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}
