// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// observer passes on what the agent reports.
type observer struct {
	states  *bindStates
	traffic *trafficMetrics
	log     *slog.Logger
}

// Observe implements agent.Observer and never blocks.
func (o *observer) Observe(event agent.Event) {
	switch e := event.(type) {
	case agent.Connected:
		o.states.up()
		o.log.Info("connected with the service", "session", e.SessionID, "version", e.ServerVersion)
	case agent.Retrying:
		o.states.down(e.Cause)
		o.log.Warn("no session with the service", "cause", e.Cause, "retryIn", e.RetryIn)
	case agent.Draining:
		o.log.Info("the service is about to stop; connecting with its successor")
	case agent.Online:
		o.states.set(e.Key, bindState{Bound: true, ID: e.OwnerEndpointID, URL: e.AssignedURL})
		level := slog.LevelInfo
		if e.Reconnected { // as all are after each restart of the service
			level = slog.LevelDebug
		}
		o.log.Log(context.Background(), level, "bound", "object", e.Key, "url", e.URL, "endpoint", e.EndpointID)
	case agent.BindRefused:
		o.refuse(e)
	case agent.UpstreamDown:
		o.log.Warn("upstream not reached", "object", e.Key, "upstream", e.Upstream, "cause", e.Cause)
	case agent.UpstreamUp:
		o.log.Info("upstream reached again", "object", e.Key, "upstream", e.Upstream)
	case agent.SealProblem:
		o.log.Warn("the seal has another state", "object", e.Key, "problem", cmp.Or(e.Cause, "none any more"))
	case agent.Connection:
		o.count(e)
	}
}

func (o *observer) refuse(e agent.BindRefused) {
	state := bindState{Reason: refusalReason(e.Code), Message: e.Cause}
	if e.StillBound {
		state.Message += "; the endpoint stays as it was before the change"
	}
	o.states.set(e.Key, state)
	o.log.Warn("refused", "object", e.Key, "url", e.URL, "reason", state.Reason, "cause", e.Cause)
}

func (o *observer) count(c agent.Connection) {
	of := objectOf(c.Key)
	switch {
	case c.Refused:
		o.traffic.failed(of)
	case c.Ended:
		o.traffic.closed(of, c.BytesIn, c.BytesOut)
	default:
		o.traffic.opened(of)
	}
}

// refusalReason returns the reason of the condition Bound for a refused bind.
func refusalReason(code tunnel.Code) string {
	switch code {
	case tunnel.CodeURLTaken:
		return v1alpha1.ReasonURLTaken
	case tunnel.CodeForbidden:
		return v1alpha1.ReasonForbidden
	case tunnel.CodeLimit:
		return v1alpha1.ReasonLimitReached
	case tunnel.CodeInvalid:
		return v1alpha1.ReasonRejected
	}
	return v1alpha1.ReasonPending // it is tried again soon
}

// token returns the credential for a session; "" if it cannot be read.
func (e *exporter) token() string {
	token, err := e.credential.Read()
	if err != nil && e.SecretFile != "" { // that of a ServiceAccount token is logged where it is read
		e.Logger.Error("reading the API key", "error", err)
	}
	return token
}
