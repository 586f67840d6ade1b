// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// checkOperator checks the installation and its registration with the account.
func (w *diagnosis) checkOperator(ctx context.Context) Hop {
	switch {
	case w.operatorsErr != nil:
		return refusedHop("KubernetesOperators "+w.searchedIn, w.operatorsErr)
	case len(w.operators) == 0:
		return broken("install it (README, \"Start\"), or name its namespace with --operator-namespace",
			"no Fairlead operator is installed: there is no KubernetesOperator %s",
			strings.Replace(w.searchedIn, "in all namespaces", "in any namespace", 1))
	case w.operator == nil:
		return broken("install it again, or delete what it left behind",
			"the operator that made these objects (%s) is not among those %s (%s)", w.installationName(), w.searchedIn,
			w.operatorNames())
	}
	o, place := w.operator, w.operator.Metadata.namespacedName()
	conditions := o.Status.Conditions
	h := ok("%s is registered and reads the account", place)
	for _, c := range []struct{ typ, bad, fix string }{
		{"AccountChanged", "True",
			"set binding.acceptAccount to the new id if the change is meant, else give back the credentials"},
		{"Registered", "False", w.registrationRemedy(conditions.get("Registered").Reason)},
		{"APIReachable", "False",
			"see that fairlead-server runs and that the manager's pods reach it (api.url, api.caBundle, proxy)"},
	} {
		if found := conditions.get(c.typ); found.Status == c.bad {
			h = broken(c.fix, "%s: %s (%s)", place, found.Message,
				joinNonEmpty(", ", c.typ+"="+found.Status, found.Reason))
			break
		}
	}
	switch {
	case h.Status == Broken:
	case !o.Spec.BindingEnabled:
		h = broken("upgrade the release with --set binding.enabled=true", "%s binds nothing: binding.enabled is false",
			place)
	case conditions.get("Registered").Status == "":
		h = unknown("%s has not registered yet", place)
		h.Fix = "see whether its manager runs:\n" +
			w.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-manager", o.Metadata.Namespace)
	default:
		h = w.checkManager(ctx, h)
	}
	for _, c := range conditions {
		h = h.with(fmt.Sprintf("KubernetesOperator %s: %s=%s %s: %s", place, c.Type, c.Status, c.Reason, c.Message))
	}
	if len(w.operators) > 1 {
		h = h.with("KubernetesOperators " + w.searchedIn + ", " + w.operatorNames())
	}
	return h
}

// registrationRemedy returns what makes the account know the installation.
func (w *diagnosis) registrationRemedy(reason string) string {
	switch reason {
	case "SecondRelease":
		return "install each release in a namespace of its own"
	case "UnknownKey":
		return "the cluster signs its tokens with a key that the service does not know: add it, where kubectl " +
			"reaches that cluster, with an API key of the scope admin:\n" +
			w.command("get --raw /openid/v1/jwks") + " | fairlead api clusters update ID --add-jwks-file -\n" +
			"(fairlead api clusters list shows the ID)"
	case "LimitReached":
		return "delete the account's operators that are gone: fairlead api kubernetes-operators"
	case "Rejected":
		return "change the chart's value that the message names"
	}
	return "give the release an API key of the account that may register operators (credentials.apiKey)"
}

// installationName names the installation that made the objects.
func (w *diagnosis) installationName() string {
	if w.isFairleads() {
		return w.target.Metadata.Annotations[annotationInstallation]
	}
	if w.bound != nil {
		return w.bound.Metadata.Annotations[annotationInstallation]
	}
	return "unknown"
}

// checkManager checks that the manager runs. Without it conditions are old; what is projected still
// works.
func (w *diagnosis) checkManager(ctx context.Context, h Hop) Hop {
	ns := w.operator.Metadata.Namespace
	selector := "app.kubernetes.io/name=fairlead-manager,app.kubernetes.io/instance=" + w.operator.Metadata.Name
	var pods list[pod]
	_, err := w.k.get(ctx, &pods, "pods", "--namespace", ns, "-l", selector)
	if err != nil {
		return h.with("the manager's pods cannot be looked at: " + err.message)
	}
	why := "there is none"
	for _, p := range pods.Items {
		if p.ready() {
			return h
		}
		why = p.Metadata.Name + ": " + p.notReadyReason()
	}
	return broken("see why:\n"+w.command("--namespace %s get pods -l %s", ns, selector),
		"no manager of %s is ready, so nothing new is projected: %s", w.operator.Metadata.namespacedName(), why)
}

// selector describes the operator's selector; "" when it has none.
func (w *diagnosis) selector() string {
	if w.operator == nil || w.operator.Spec.EndpointSelector == "" {
		return ""
	}
	return fmt.Sprintf("its selector is %q", account.Shorten(w.operator.Spec.EndpointSelector))
}

// checkBoundEndpoint checks the operator's projection of the account's endpoints.
func (w *diagnosis) checkBoundEndpoint(context.Context) Hop {
	name := w.o.URL.Host
	switch {
	case w.boundErr != nil:
		return refusedHop("BoundEndpoint "+name, w.boundErr)
	case w.bound == nil && (w.hasStatus(HopOperator, Broken) || w.hasStatus(HopOperator, Unknown)):
		return Hop{Status: Skipped, Detail: "there is none"}
	case w.bound == nil:
		return broken("", "there is no BoundEndpoint %s", name).asSymptom()
	case w.bound.Spec.State == "Released":
		return broken("", "the BoundEndpoint is Released: its Services are deleted").asSymptom()
	}
	var h Hop
	place := w.bound.Metadata.namespacedName()
	services, ready := w.bound.Status.Conditions.get("ServicesReady"), w.bound.Status.Conditions.get("Ready")
	switch {
	case services.Status == "False" && (w.hasStatus(HopNamespace, Broken) || w.hasStatus(HopService, Broken)):
		h = Hop{Status: Skipped, Detail: fmt.Sprintf("%s has the same reason: %s", place, services.Reason)}
	case services.Status == "False":
		h = broken(remedyFor(services.Reason), "%s (%s)", services.Message, services.Reason)
	case w.boundPort() == 0:
		h = broken("", "BoundEndpoint %s has no port %d", place, w.o.URL.Port).asSymptom()
	case services.Status == "":
		h = unknown("BoundEndpoint %s has no conditions yet", place)
	default:
		h = ok("%s: Ready=%s (%s)", place, ready.Status, ready.Reason)
	}
	for _, c := range w.bound.Status.Conditions {
		h = h.with(w.boundCondition(c.Type)...)
	}
	return h
}

// boundURL returns the URL with which the BoundEndpoint has an endpoint at the URL's port; "" when
// there is none.
func (w *diagnosis) boundURL() string {
	if w.bound == nil {
		return ""
	}
	for _, e := range w.bound.Spec.Endpoints {
		if u, err := account.ParseEndpointURL(e.URL); err == nil && u.HostPort() == w.o.URL.HostPort() {
			return e.URL
		}
	}
	return ""
}

// startAgent returns a remedy with the command line that starts an agent for the URL. A cluster
// that exports the URL has no such agent.
func (w *diagnosis) startAgent(remedy string) string {
	if w.o.ExportContext == "" {
		remedy += "; if a cluster exports it, name that one with --export-context"
	}
	return remedy + ":\n" + strings.Join([]string{"fairlead", w.o.URL.Scheme, "PORT", "--url", w.url}, " ")
}
