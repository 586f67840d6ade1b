// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
)

// checkCluster asks for the target Service, and so learns whether the cluster answers at all.
func (w *diagnosis) checkCluster(ctx context.Context) Hop {
	name, ns := w.o.URL.Service(), w.o.URL.Namespace()
	w.targetFound, w.targetErr = w.k.get(ctx, &w.target, "services", name, "--namespace", ns)
	which := "kubectl's current context"
	if w.report.Context != "" {
		which = "context " + w.report.Context
	}
	if r := w.targetErr; r != nil {
		switch r.kind {
		case noKubectl:
			return broken("install kubectl (https://kubernetes.io/docs/tasks/tools/)", "%s", r.message)
		case unreachable:
			return broken("name the cluster with --context and --kubeconfig, and see that\n"+
				w.command("get namespace %s", ns),
				"%s does not answer: %s", which, r.message)
		case unauthorized:
			return broken("log in to the cluster, so that this works:\n"+w.command("get namespace %s", ns),
				"%s does not know you: %s", which, r.message)
		case other:
			return broken("see that this works:\n"+w.command("get services --namespace %s", ns), "%s: %s", which,
				r.message)
		}
	}
	w.findOperators(ctx)
	return ok("%s answers", which)
}

// checkNamespace checks the namespace that the URL names.
func (w *diagnosis) checkNamespace(ctx context.Context) Hop {
	name := w.o.URL.Namespace()
	var ns namespace
	found, err := w.k.get(ctx, &ns, "namespaces", name)
	switch {
	case err != nil && w.targetFound: // the user may not read namespaces; the Service proves that it exists
		return ok("%s exists: it has the Service", name)
	case err != nil:
		return refusedHop("namespace "+name, err)
	case !found:
		return broken("create it, and the endpoint projects at that moment:\n"+w.command("create namespace %s", name),
			"the second part of the hostname names namespace %s, which does not exist", name)
	case ns.Metadata.DeletionTimestamp != nil || ns.Status.Phase == "Terminating":
		return broken("wait until it is gone, create it anew, and the endpoint projects",
			"namespace %s is being deleted",
			name)
	}
	return ok("%s exists", name)
}

// findOperators finds the operators of the cluster and the BoundEndpoint of the hostname.
func (w *diagnosis) findOperators(ctx context.Context) {
	scope := []string{"--all-namespaces"}
	w.searchedIn = "in all namespaces"
	if w.o.OperatorNamespace != "" {
		scope = w.inNamespace(w.o.OperatorNamespace)
	}
	w.operators, w.operatorsErr = kubernetesOperators(ctx, w.k, scope)
	if w.operatorsErr != nil && w.operatorsErr.kind == forbidden && w.o.OperatorNamespace == "" {
		guess := w.operatorNamespaceOfTarget()
		if guess == "" {
			w.searchedIn += " (you may not list them there: --operator-namespace names the one)"
			w.boundErr = w.operatorsErr
			return
		}
		scope = w.inNamespace(guess)
		w.searchedIn += ", to which the Service leads, as you may not list them in all"
		w.operators, w.operatorsErr = kubernetesOperators(ctx, w.k, scope)
	}
	var beps list[boundEndpoint]
	_, w.boundErr = w.k.get(ctx, &beps,
		append([]string{"boundendpoints.bindings.fairlead.dev", "--field-selector=metadata.name=" + w.o.URL.Host},
			scope...)...)
	if w.boundErr != nil && w.boundErr.kind == noKind {
		w.boundErr = nil
	}
	w.chooseOperator(beps.Items)
}

func (w *diagnosis) inNamespace(name string) []string {
	w.searchedIn = "in namespace " + name
	return []string{"--namespace", name}
}

func kubernetesOperators(ctx context.Context, k *kubectl, scope []string) ([]kubernetesOperator, *refusal) {
	var found list[kubernetesOperator]
	_, err := k.get(ctx, &found, append([]string{"kubernetesoperators.bindings.fairlead.dev"}, scope...)...)
	if err != nil && err.kind == noKind {
		return nil, nil // the CRDs come with the operator
	}
	return found.Items, err
}

// operatorNamespaceOfTarget returns the operator's namespace according to the target Service, or
// "".
func (w *diagnosis) operatorNamespaceOfTarget() string {
	if !w.isFairleads() {
		return ""
	}
	if _, home, _ := parseExternalName(w.target.Spec.ExternalName); home != "" {
		return home
	}
	home, _, _ := strings.Cut(w.target.Metadata.Annotations[annotationInstallation], "/")
	return home
}

// chooseOperator picks the operator of the hostname: the one that made the target Service, else one
// with a BoundEndpoint, else one that has bindings enabled.
func (w *diagnosis) chooseOperator(beps []boundEndpoint) {
	id := ""
	if w.isFairleads() {
		id = w.target.Metadata.Labels[labelInstallation]
	}
	for i := range beps {
		if have := beps[i].Metadata.Labels[labelInstallation]; have != "" &&
			(have == id || id == "" && w.bound == nil) {
			w.bound = &beps[i]
		}
	}
	if id == "" && w.bound != nil {
		id = w.bound.Metadata.Labels[labelInstallation]
	}
	for i := range w.operators {
		o := &w.operators[i]
		if id != "" && installationID(o.Metadata.namespacedName()) == id {
			w.operator = o
			return
		}
	}
	for i := range w.operators {
		if o := &w.operators[i]; id == "" &&
			(w.operator == nil || o.Spec.BindingEnabled && !w.operator.Spec.BindingEnabled) {
			w.operator = o
		}
	}
}

// operatorNames returns the number and the names of the operators.
func (w *diagnosis) operatorNames() string {
	names := make([]string, len(w.operators))
	for i := range w.operators {
		names[i] = w.operators[i].Metadata.namespacedName()
	}
	return fmt.Sprintf("%d: %s", len(names), joinNonEmpty(", ", names...))
}
