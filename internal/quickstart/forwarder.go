// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/fixedsource"
	"github.com/fairlead-dev/fairlead/internal/service"
)

const (
	// callPause is how long the quick start waits before it calls again while the forwarder starts.
	callPause = 10 * time.Millisecond
	// callTimeout is how long the target may take to answer the first call.
	callTimeout = 5 * time.Second
)

// startForwarder starts a forwarder that listens for the endpoint, and returns its address.
func (q *quickstart) startForwarder(
	ctx context.Context, addrs service.Addresses, tls *tls.Config, made secrets, endpointID string,
) (string, error) {
	port, err := q.freePort(ctx, forwarderPort)
	if err != nil {
		return "", err
	}
	o := forwarder.Options{
		EdgeAddress: addrs.Service.String(), TLS: tls, AuthtokenFile: made.forwarderFile, InstanceID: accountName,
		Source: fixedsource.Source{OperatorID: made.operatorID,
			BoundEndpoints: []*v1alpha1.BoundEndpoint{boundEndpoint(endpointID, port)}},
		ListenOptions: forwarder.ListenOptions{Host: loopback}, DrainTimeout: drainTimeout, Logger: q.options.Logger,
	}
	q.run("the forwarder", func(ctx context.Context) error { return forwarder.Run(ctx, o) })
	return address(port), nil
}

// boundEndpoint returns the object that a manager would write for the endpoint.
func boundEndpoint(endpointID string, port int) *v1alpha1.BoundEndpoint {
	return &v1alpha1.BoundEndpoint{
		ObjectMeta: metav1.ObjectMeta{Name: "hello.demo"},
		Spec: v1alpha1.BoundEndpointSpec{
			Service: "hello", Namespace: "demo", ProjectionID: endpointID, State: v1alpha1.StateBound,
			Ports:     []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: int32(port)}},
			Endpoints: []v1alpha1.EndpointRef{{ID: endpointID, URL: endpointURL}},
		},
	}
}

// call requests the endpoint's page at the forwarder, as soon as that takes calls. targetDown reports
// that the call reached the agent, and the target did not answer.
func (q *quickstart) call(ctx context.Context) (targetDown bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		code, err := callOnce(ctx, q.summary.forwarder)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return true, nil // the target takes longer than callTimeout
		case err == nil && !slices.Contains(incomplete, code):
			return code != "", nil
		case err == nil:
			err = fmt.Errorf("the call was answered with %s", code)
		}
		select {
		case err := <-q.failed:
			return false, err
		default:
		}
		if !timer.Sleep(ctx, callPause) {
			return false, fmt.Errorf("the forwarder: calling %s at %s: %w", endpointURL, q.summary.forwarder, err)
		}
	}
}

// incomplete are the codes of answers to calls that did not reach the agent.
var incomplete = []account.Code{account.CodeNoEdge, account.CodeEndpointOffline, account.CodeEndpointUnknown}

// callOnce makes one call and returns the code of the product's own answer; "" for the target's.
func callOnce(ctx context.Context, forwarder string) (account.Code, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+forwarder+"/", nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", err
	}
	return account.Code(res.Header.Get(account.CodeHeader)), res.Body.Close()
}
