// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// DenyDefault matches the namespaces that get no Services by default: those of Kubernetes itself.
const DenyDefault = "kube-*"

// Policy decides which namespaces get Services. The zero value allows all.
type Policy struct {
	// Own is the operator's namespace, which never gets Services.
	Own string
	// Allow are the only namespaces that get Services; empty: all.
	Allow []string
	// Deny are names, and patterns such as kube-*.
	Deny []string
	// Consent selects by their labels the namespaces that get Services; nil: all. Not together with
	// Allow.
	Consent labels.Selector
}

// Names of the flags in messages.
const (
	flagAllow    = "--allow-namespaces"
	flagDeny     = "--deny-namespaces"
	flagSelector = "--namespace-selector"
)

// Options say which namespaces get Services.
type Options struct {
	AllowNamespaces   []string // AllowNamespaces are the only ones; empty: all.
	DenyNamespaces    []string // DenyNamespaces are names, and patterns such as kube-*.
	NamespaceSelector string   // NamespaceSelector selects by labels those that consent; empty: all.
}

// Parse parses the flags' values for an operator in the namespace own.
func (o *Options) Parse(own string, c *options.Checker) Policy {
	p := Policy{Own: own, Allow: o.AllowNamespaces, Deny: o.DenyNamespaces}
	for _, pattern := range p.Deny {
		if name := strings.TrimSuffix(pattern, "*"); pattern != "*" &&
			len(validation.IsDNS1123Label(strings.TrimSuffix(name, "-"))) > 0 {
			c.Reject(flagDeny, pattern, "give names of namespaces, or prefixes such as kube-*")
		}
	}
	for _, name := range p.Allow {
		if len(validation.IsDNS1123Label(name)) > 0 {
			c.Reject(flagAllow, name, "give names of namespaces")
		} else if reason := p.denialReason(name); reason != "" {
			c.Reject(flagAllow, name, "take it off the list: "+reason)
		}
	}
	if o.NamespaceSelector == "" {
		return p
	}
	var err error
	if p.Consent, err = labels.Parse(o.NamespaceSelector); err != nil {
		c.Reject(flagSelector, o.NamespaceSelector, "give a label selector, such as fairlead=yes: "+err.Error())
	}
	if len(p.Allow) > 0 {
		c.Reject(flagSelector, o.NamespaceSelector, "give either "+flagAllow+" or "+flagSelector+
			": with a list the manager may not read the labels of namespaces")
	}
	return p
}

// Listed reports whether only listed namespaces get Services, and the manager has rights in no
// other.
func (p Policy) Listed() bool { return len(p.Allow) > 0 }

// RefusalReason returns why the namespace gets no Services, regardless of its labels; empty if it
// may.
func (p Policy) RefusalReason(namespace string) string {
	if reason := p.denialReason(namespace); reason != "" {
		return reason
	}
	if p.Listed() && !slices.Contains(p.Allow, namespace) {
		return fmt.Sprintf("namespace %s is not in binding.namespaces.allow", namespace)
	}
	return ""
}

func (p Policy) denialReason(namespace string) string {
	if namespace == p.Own {
		return fmt.Sprintf("no endpoints are projected into the operator's own namespace, %s", namespace)
	}
	for _, pattern := range p.Deny {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if namespace == pattern || isPrefix && strings.HasPrefix(namespace, prefix) {
			return fmt.Sprintf("no endpoints are projected into namespace %s: binding.namespaces.deny has %s",
				namespace, pattern)
		}
	}
	return ""
}

// MissingConsent returns why the namespace's labels do not consent; empty if they do or need not.
func (p Policy) MissingConsent(namespace string, has map[string]string) string {
	if p.Consent == nil || p.Consent.Matches(labels.Set(has)) {
		return ""
	}
	return fmt.Sprintf("namespace %s does not consent: its labels do not match %s", namespace, p.Consent)
}
