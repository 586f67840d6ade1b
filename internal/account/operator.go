// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"strings"
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

// Features of an operator. Only FeatureBindings, which projects kubernetes-bound endpoints, means
// anything here; the others are those that operators of the public API report.
const (
	FeatureBindings = "bindings"
	FeatureIngress  = "ingress"
	FeatureGateway  = "gateway"
)

// Features returns every feature that an operator may report.
func Features() []string { return []string{FeatureBindings, FeatureIngress, FeatureGateway} }

// OperatorDeployment is where an operator runs.
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

// OperatorPatch changes an operator; nil fields stay. Objects are merged one level, lists are
// replaced.
type OperatorPatch struct {
	Description     *string
	Metadata        *string
	EnabledFeatures *[]string
	Region          *string
	Deployment      DeploymentPatch
	Binding         BindingPatch
}

// DeploymentPatch changes an operator's deployment; nil fields stay.
type DeploymentPatch struct {
	Name        *string
	Namespace   *string
	Version     *string
	ClusterName *string
}

// BindingPatch changes what an operator projects; nil fields stay. Clear removes the binding; Set
// makes sure that there is one.
type BindingPatch struct {
	Clear             bool
	Set               bool
	EndpointSelectors *[]string
	IngressEndpoint   *string
}

// Apply returns o with the patch applied. The identity (cluster uid, namespace, name) of an
// operator that has a cluster uid cannot be patched: CodeInvalid. The result is validated.
func (p OperatorPatch) Apply(o Operator) (Operator, error) {
	before := o.Deployment
	p.apply(&o)
	if o.ClusterUID != "" && (before.Name != o.Deployment.Name || before.Namespace != o.Deployment.Namespace) {
		return Operator{}, Invalid("deployment", o.Deployment.Namespace+"/"+o.Deployment.Name,
			"namespace and name identify the installation and do not change; register the new place and delete this "+
				"operator")
	}
	return o, o.Validate()
}

// ApplyNew returns a new operator with the patch applied, validated.
func (p OperatorPatch) ApplyNew(o Operator) (Operator, error) {
	p.apply(&o)
	return o, o.Validate()
}

func (p OperatorPatch) apply(o *Operator) {
	set(&o.Description, p.Description)
	set(&o.Metadata, p.Metadata)
	if p.EnabledFeatures != nil {
		o.EnabledFeatures = make([]string, len(*p.EnabledFeatures))
		for i, feature := range *p.EnabledFeatures {
			o.EnabledFeatures[i] = strings.ToLower(feature)
		}
	}
	set(&o.Region, p.Region)
	set(&o.Deployment.Name, p.Deployment.Name)
	set(&o.Deployment.Namespace, p.Deployment.Namespace)
	set(&o.Deployment.Version, p.Deployment.Version)
	set(&o.Deployment.ClusterName, p.Deployment.ClusterName)
	o.Binding = p.Binding.apply(o.Binding)
}

func (p BindingPatch) apply(b *OperatorBinding) *OperatorBinding {
	if p.Clear {
		b = nil
	}
	if !p.Set && p.EndpointSelectors == nil && p.IngressEndpoint == nil {
		return b
	}
	var out OperatorBinding
	if b != nil {
		out = *b
	}
	set(&out.EndpointSelectors, p.EndpointSelectors)
	set(&out.IngressEndpoint, p.IngressEndpoint)
	return &out
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

// Operators stores the operators of an account.
type Operators interface {
	// UpsertOperator registers o by (cluster uid, namespace, name): an operator that registers
	// again keeps its id, its last_seen_at moves. Values from o replace what was stored; without a
	// difference only last_seen_at moves. Without a cluster uid each call registers a new operator.
	UpsertOperator(ctx context.Context, o Operator) (op *Operator, created bool, err error)
	Operator(ctx context.Context, accountID, id string) (*Operator, error)
	ListOperators(ctx context.Context, accountID string, p Page) (page []Operator, more bool, err error)
	PatchOperator(ctx context.Context, by Caller, id string, p OperatorPatch) (*Operator, error)
	DeleteOperator(ctx context.Context, by Caller, id string) error
}
