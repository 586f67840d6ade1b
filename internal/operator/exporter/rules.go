// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"fmt"
	"slices"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// rules are what objects may ask for.
type rules struct {
	upstreams   upstream.Rules
	urlPatterns []string
}

func newRules(o *Options, clusterDomain string) rules {
	return rules{urlPatterns: o.URLPatterns,
		upstreams: upstream.Rules{ClusterDomain: clusterDomain, CrossNamespace: o.CrossNamespace}}
}

// endpointURL parses the URL of an object in the namespace and checks that the object may have it.
func (r rules) endpointURL(binding, raw, namespace string) (account.EndpointURL, *status.Problem) {
	u, err := account.ParseBindingURL(binding, raw)
	if err != nil {
		return u, status.Problemf(v1alpha1.ReasonURLNotAllowed, "%s", sentence(err))
	}
	if binding != account.BindingKubernetes || u.Namespace() == namespace {
		return u, nil
	}
	if slices.ContainsFunc(r.urlPatterns, func(p string) bool { return account.MatchPattern(p, u.String()) }) {
		return u, nil
	}
	return u, status.Problemf(v1alpha1.ReasonURLNotAllowed, "url %s is one of namespace %s, and this object is in "+
		"namespace %s: give %s://%s.%s, make the object in namespace %s, or add a pattern that admits the URL to "+
		"export.urls", u, u.Namespace(), namespace, u.Scheme, u.Service(), namespace, u.Namespace())
}

// CheckURL implements cloudendpoint.URLs.
func (r rules) CheckURL(namespace, binding, url string) (account.EndpointURL, string) {
	u, p := r.endpointURL(binding, url, namespace)
	if p != nil {
		return u, p.Message
	}
	return u, ""
}

// sentence returns what an error of package account says about its first field.
func sentence(err error) string {
	fields := account.FieldsOf(err)
	if len(fields) == 0 {
		return err.Error()
	}
	return fmt.Sprintf("%s %q: %s", fields[0].Field, fields[0].Value, fields[0].Rule)
}

// bindingOf returns the binding of a spec.
func bindingOf(bindings []string) string {
	if len(bindings) == 0 {
		return account.BindingKubernetes
	}
	return bindings[0]
}
