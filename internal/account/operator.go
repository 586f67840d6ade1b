// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"
)

// Operator is a registered installation of fairlead-operator.
type Operator struct {
	ID              string             `json:"id"`
	URI             string             `json:"uri"`
	Description     string             `json:"description"`
	Metadata        string             `json:"metadata"`
	EnabledFeatures []string           `json:"enabled_features"`
	Region          string             `json:"region"`
	Deployment      OperatorDeployment `json:"deployment"`
	Binding         *OperatorBinding   `json:"binding"`
	Principal       *Ref               `json:"principal"`
	CreatedAt       time.Time          `json:"created_at"`
	UpdatedAt       time.Time          `json:"updated_at"`
	ClusterUID      string             `json:"cluster_uid"`
	LastSeenAt      time.Time          `json:"last_seen_at"`

	AccountID string `json:"-"`
}

// FeatureBindings is the feature of an operator that projects kubernetes-bound endpoints.
const FeatureBindings = "bindings"

// OperatorDeployment says where an operator runs.
type OperatorDeployment struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Version     string `json:"version"`
	ClusterName string `json:"cluster_name"`
}

// OperatorBinding is what an operator projects.
type OperatorBinding struct {
	EndpointSelectors []string `json:"endpoint_selectors"`
	IngressEndpoint   string   `json:"ingress_endpoint"`
	Cert              *string  `json:"cert"` // always null: forwarders authenticate by authtoken
}

// OperatorPatch changes an operator; nil fields stay.
type OperatorPatch struct {
	Description     *string
	Metadata        *string
	EnabledFeatures *[]string
	Region          *string
	Deployment      *OperatorDeployment
	Binding         *OperatorBinding
}

// OperatorPage is a page of operators.
type OperatorPage struct {
	Operators []Operator
	More      bool
}

// Operators keeps the operators of an account.
type Operators interface {
	// UpsertOperator registers o by (cluster uid, namespace, name): an operator that registers again keeps its id, its last_seen_at
	// moves. Values from o replace what was stored; without a difference only last_seen_at moves.
	UpsertOperator(ctx context.Context, o Operator) (op *Operator, created bool, err error)
	Operator(ctx context.Context, accountID, id string) (*Operator, error)
	ListOperators(ctx context.Context, accountID string, p Page) (*OperatorPage, error)
	PatchOperator(ctx context.Context, accountID, id string, p OperatorPatch) (*Operator, error)
	DeleteOperator(ctx context.Context, accountID, id string) error
}
