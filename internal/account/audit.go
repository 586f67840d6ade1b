// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"
)

// AuditType names what happened to which kind of object.
type AuditType string

// The types of audit events. An endpoint that goes online or offline has none: its session has.
const (
	AuditEndpointCreated   AuditType = "endpoint.created"
	AuditEndpointUpdated   AuditType = "endpoint.updated"
	AuditEndpointDeleted   AuditType = "endpoint.deleted"
	AuditSealChanged       AuditType = "endpoint.seal_changed" // an agent brought another key, or none
	AuditSessionStarted    AuditType = "tunnel_session.started"
	AuditSessionEnded      AuditType = "tunnel_session.ended"
	AuditOperatorCreated   AuditType = "kubernetes_operator.created"
	AuditOperatorUpdated   AuditType = "kubernetes_operator.updated"
	AuditOperatorDeleted   AuditType = "kubernetes_operator.deleted"
	AuditAPIKeyCreated     AuditType = "api_key.created"
	AuditAPIKeyUpdated     AuditType = "api_key.updated"
	AuditAPIKeyDeleted     AuditType = "api_key.deleted"
	AuditCredentialCreated AuditType = "credential.created"
	AuditCredentialUpdated AuditType = "credential.updated"
	AuditCredentialDeleted AuditType = "credential.deleted"
	AuditBackendCreated    AuditType = "backend.created"
	AuditBackendUpdated    AuditType = "backend.updated"
	AuditBackendDeleted    AuditType = "backend.deleted"
	AuditBackendSwitched   AuditType = "backend.switched"
	AuditDomainGranted     AuditType = "domain.granted"
	AuditDomainRevoked     AuditType = "domain.revoked"
	AuditAppSessionCreated AuditType = "application_session.created"
	AuditAppSessionRevoked AuditType = "application_session.revoked"
	AuditAppDeviceChanged  AuditType = "application_session.device_changed"
	AuditAppUserRevoked    AuditType = "application_user.revoked"
	AuditAppSessionCut     AuditType = "application_session.cut" // after either: what was being served
	AuditClusterCreated    AuditType = "cluster.created"
	AuditClusterUpdated    AuditType = "cluster.updated"
	AuditClusterDeleted    AuditType = "cluster.deleted"
	AuditTokenRefused      AuditType = "cluster.token_refused" // for the account; at most a few a minute
	AuditSealRefused       AuditType = "cluster.seal_refused"  // the agent of a sealed endpoint; once an hour
)

// AuditTypes lists the types.
func AuditTypes() []AuditType {
	return []AuditType{
		AuditEndpointCreated, AuditEndpointUpdated, AuditEndpointDeleted, AuditSealChanged,
		AuditSessionStarted, AuditSessionEnded,
		AuditOperatorCreated, AuditOperatorUpdated, AuditOperatorDeleted, AuditAPIKeyCreated, AuditAPIKeyUpdated,
		AuditAPIKeyDeleted,
		AuditCredentialCreated, AuditCredentialUpdated, AuditCredentialDeleted,
		AuditBackendCreated, AuditBackendUpdated, AuditBackendDeleted, AuditBackendSwitched, AuditDomainGranted,
		AuditDomainRevoked,
		AuditAppSessionCreated, AuditAppSessionRevoked, AuditAppDeviceChanged, AuditAppUserRevoked,
		AuditAppSessionCut,
		AuditClusterCreated, AuditClusterUpdated, AuditClusterDeleted, AuditTokenRefused,
		AuditSealRefused,
	}
}

// AuditEvent is a record of something that happened in an account, written in the transaction that
// did it. It holds no secrets. URIs are filled in by the API server, where the object has one.
type AuditEvent struct {
	ID         string    `json:"id"`
	URI        string    `json:"uri"`
	Type       AuditType `json:"type"`
	OccurredAt time.Time `json:"occurred_at"`
	// the API key, authtoken, user or issuer that did it; nil: the service, or who administers it
	Principal *Ref              `json:"principal"`
	Object    *Ref              `json:"object"`
	Details   map[string]string `json:"details"`
	// ResourceVersion is the place among the account's audit events, not among endpoint events.
	ResourceVersion ResourceVersion `json:"resource_version"`
}

// AuditFilter narrows a list or a watch of audit events; empty fields match everything.
type AuditFilter struct {
	Type     AuditType
	ObjectID string
}

// AuditPage is a page of audit events, newest first, with the version at which it was read.
type AuditPage struct {
	Events  []AuditEvent
	More    bool
	Version ResourceVersion
}

// AuditWatchEvent is one line of the watch of audit events: ADDED with an event, or BOOKMARK.
type AuditWatchEvent struct {
	Type            EventType       `json:"type"`
	ResourceVersion ResourceVersion `json:"resource_version"`
	Event           *AuditEvent     `json:"event,omitempty"`
}

// AuditLog reads the audit events of an account, which expire (docs/reference/api/events.md).
type AuditLog interface {
	AuditEvent(ctx context.Context, accountID, id string) (*AuditEvent, error)
	AuditEvents(ctx context.Context, accountID string, f AuditFilter, p Page) (*AuditPage, error)
	// AuditEventsAfter returns at most limit events after v, in order, and the version up to which
	// was read. CodeGone as for EventLog.
	AuditEventsAfter(ctx context.Context, accountID string, v ResourceVersion, f AuditFilter, limit int) ([]AuditEvent,
		ResourceVersion, error)
	// SubscribeAudit is EventLog.Subscribe for audit events.
	SubscribeAudit(accountID string) (wake <-chan struct{}, cancel func())
}
