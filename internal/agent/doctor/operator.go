// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// operatorInstallation is the operator that has, or would have, the hostname, with its BoundEndpoint.
type operatorInstallation struct {
	*cluster
	report    *path.Report
	url       account.EndpointURL
	target    *target
	namespace string // namespace is Options.OperatorNamespace.

	searchedIn   string // where operators were looked for, for people
	operators    []kubernetesOperator
	operatorsErr *refusal
	operator     *kubernetesOperator // nil when there is none or it may not be seen
	bound        *boundEndpoint
	boundErr     *refusal
}

// find finds the operators of the cluster and the BoundEndpoint of the hostname.
func (in *operatorInstallation) find(ctx context.Context) {
	scope := in.list(ctx)
	if in.operatorsErr != nil && in.operatorsErr.kind == forbidden && in.namespace == "" {
		guess := in.target.operatorNamespace()
		if guess == "" {
			in.searchedIn += " (you may not list them there: --operator-namespace names the one)"
			in.boundErr = in.operatorsErr
			return
		}
		scope = in.inNamespace(guess)
		in.searchedIn += ", to which the Service leads, as you may not list them in all"
		in.operators, in.operatorsErr = kubernetesOperators(ctx, in.cluster, scope)
	}
	var beps list[boundEndpoint]
	_, in.boundErr = in.get(ctx, &beps,
		append([]string{"boundendpoints.bindings.fairlead.dev", "--field-selector=metadata.name=" + in.url.Host},
			scope...)...)
	if in.boundErr != nil && in.boundErr.kind == noKind {
		in.boundErr = nil
	}
	in.choose(beps.Items)
}

// list lists the operators, in the namespace of the options or in all, and returns that scope.
func (in *operatorInstallation) list(ctx context.Context) (scope []string) {
	scope, in.searchedIn = []string{"--all-namespaces"}, "in all namespaces"
	if in.namespace != "" {
		scope = in.inNamespace(in.namespace)
	}
	in.operators, in.operatorsErr = kubernetesOperators(ctx, in.cluster, scope)
	return scope
}

func (in *operatorInstallation) inNamespace(name string) []string {
	in.searchedIn = "in namespace " + name
	return []string{"--namespace", name}
}

func kubernetesOperators(ctx context.Context, k *cluster, scope []string) ([]kubernetesOperator, *refusal) {
	var found list[kubernetesOperator]
	_, err := k.get(ctx, &found, append([]string{"kubernetesoperators.bindings.fairlead.dev"}, scope...)...)
	if err != nil && err.kind == noKind {
		return nil, nil // the CRDs come with the operator
	}
	return found.Items, err
}

// choose picks the operator of the hostname: the one that made the target Service, else one
// with a BoundEndpoint, else one that has bindings enabled.
func (in *operatorInstallation) choose(beps []boundEndpoint) {
	id := ""
	if in.target.isFairleads() {
		id = in.target.service.Metadata.Labels[labelInstallation]
	}
	for i := range beps {
		if have := beps[i].Metadata.Labels[labelInstallation]; have != "" &&
			(have == id || id == "" && in.bound == nil) {
			in.bound = &beps[i]
		}
	}
	if id == "" && in.bound != nil {
		id = in.bound.Metadata.Labels[labelInstallation]
	}
	for i := range in.operators {
		o := &in.operators[i]
		if id != "" && installationID(o.Metadata.namespacedName()) == id || id == "" &&
			(in.operator == nil || o.Spec.BindingEnabled && !in.operator.Spec.BindingEnabled) {
			in.operator = o
		}
	}
}

// operatorNames returns the number and the names of the operators.
func (in *operatorInstallation) operatorNames() string {
	names := make([]string, len(in.operators))
	for i := range in.operators {
		names[i] = in.operators[i].Metadata.namespacedName()
	}
	return fmt.Sprintf("%d: %s", len(names), joinNonEmpty(", ", names...))
}

// boundPort returns the BoundEndpoint's target port for the URL's port; 0 when it has none.
func (in *operatorInstallation) boundPort() int {
	if in.bound == nil {
		return 0
	}
	for _, p := range in.bound.Spec.Ports {
		if p.Port == in.url.Port && p.State != "Released" {
			return p.TargetPort
		}
	}
	return 0
}

// boundCondition returns a condition of the BoundEndpoint as evidence.
func (in *operatorInstallation) boundCondition(typ string) []string {
	if in.bound == nil {
		return nil
	}
	return path.Conditions{in.bound.Status.Conditions.Get(typ)}.
		Evidence("BoundEndpoint", in.bound.Metadata.namespacedName())
}

// managerRemedy is the remedy for damaged objects of Fairlead: a running manager repairs them, so
// it does not run.
func (in *operatorInstallation) managerRemedy() string {
	fix := "a running manager repairs this in a second; see whether it runs"
	if in.operator != nil {
		fix += ":\n" + in.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-manager",
			in.operator.Metadata.Namespace)
	}
	return fix
}

// boundURL returns the URL with which the BoundEndpoint has an endpoint at the URL's port; "" when
// there is none.
func (in *operatorInstallation) boundURL() string {
	if in.bound == nil {
		return ""
	}
	for _, e := range in.bound.Spec.Endpoints {
		if u, err := account.ParseEndpointURL(e.URL); err == nil && u.HostPort() == in.url.HostPort() {
			return e.URL
		}
	}
	return ""
}

func (in *operatorInstallation) boundURLs() []string {
	var urls []string
	for _, e := range in.bound.Spec.Endpoints {
		urls = append(urls, e.URL)
	}
	return urls
}

// checkOperator checks the installation and its registration with the account.
func (in *operatorInstallation) checkOperator(ctx context.Context) path.Hop {
	switch {
	case in.operatorsErr != nil:
		return refusedHop("KubernetesOperators "+in.searchedIn, in.operatorsErr)
	case len(in.operators) == 0:
		return path.Brokenf("install it (README, \"Start\"), or name its namespace with --operator-namespace",
			"no Fairlead operator is installed: there is no KubernetesOperator %s",
			strings.Replace(in.searchedIn, "in all namespaces", "in any namespace", 1))
	case in.operator == nil:
		return path.Brokenf("install it again, or delete what it left behind",
			"the operator that made these objects (%s) is not among those %s (%s)", in.installationName(),
			in.searchedIn, in.operatorNames())
	}
	o, place := in.operator, in.operator.Metadata.namespacedName()
	conditions := o.Status.Conditions
	h := path.OKf("%s is registered and reads the account", place)
	for _, c := range []struct{ typ, bad, fix string }{
		{"AccountChanged", "True",
			"set binding.acceptAccount to the new id if the change is meant, else give back the credentials"},
		{"Registered", "False", in.registrationRemedy(conditions.Get("Registered").Reason)},
		{"APIReachable", "False", path.ReachService},
	} {
		if found := conditions.Get(c.typ); found.Status == c.bad {
			h = found.Broken(c.fix, place)
			break
		}
	}
	switch {
	case h.Status == path.Broken:
	case !o.Spec.BindingEnabled:
		h = path.Brokenf("upgrade the release with --set binding.enabled=true",
			"%s binds nothing: binding.enabled is false", place)
	case conditions.Get("Registered").Status == "":
		h = path.Unknownf("%s has not registered yet", place)
		h.Fix = "see whether its manager runs:\n" +
			in.command("--namespace %s get pods -l app.kubernetes.io/name=fairlead-manager", o.Metadata.Namespace)
	default:
		h = in.checkManager(ctx, h)
	}
	h = h.With(conditions.Evidence("KubernetesOperator", place)...)
	if len(in.operators) > 1 {
		h = h.With("KubernetesOperators " + in.searchedIn + ", " + in.operatorNames())
	}
	return h
}

// registrationRemedy returns what makes the account know the installation.
func (in *operatorInstallation) registrationRemedy(reason string) string {
	if reason != "UnknownKey" {
		return path.Remedy("KubernetesOperator", reason)
	}
	return "the cluster signs its tokens with a key that the service does not know: add it, where kubectl " +
		"reaches that cluster, with an API key of the scope admin:\n" +
		in.command("get --raw /openid/v1/jwks") + " | fairlead api clusters update ID --add-jwks-file -\n" +
		"(fairlead api clusters list shows the ID)"
}

// installationName names the installation that made the objects.
func (in *operatorInstallation) installationName() string {
	if in.target.isFairleads() {
		return in.target.service.Metadata.Annotations[annotationInstallation]
	}
	if in.bound != nil {
		return in.bound.Metadata.Annotations[annotationInstallation]
	}
	return "unknown"
}

// checkManager checks that the manager runs. Without it conditions are old; what is projected still
// works.
func (in *operatorInstallation) checkManager(ctx context.Context, h path.Hop) path.Hop {
	ns := in.operator.Metadata.Namespace
	selector := "app.kubernetes.io/name=fairlead-manager,app.kubernetes.io/instance=" + in.operator.Metadata.Name
	pods, err := listSelected[pod](ctx, in.cluster, "pods", ns, selector)
	if err != nil {
		return h.With("the manager's pods cannot be looked at: " + err.message)
	}
	why := "there is none"
	for _, p := range pods {
		if p.ready() {
			return h
		}
		why = p.Metadata.Name + ": " + p.notReadyReason()
	}
	return path.Brokenf("see why:\n"+in.command("--namespace %s get pods -l %s", ns, selector),
		"no manager of %s is ready, so nothing new is projected: %s", in.operator.Metadata.namespacedName(), why)
}

// selector describes the operator's selector; "" when it has none.
func (in *operatorInstallation) selector() string {
	if in.operator == nil || in.operator.Spec.EndpointSelector == "" {
		return ""
	}
	return fmt.Sprintf("its selector is %q", account.Shorten(in.operator.Spec.EndpointSelector))
}

// checkBoundEndpoint checks the operator's projection of the account's endpoints.
func (in *operatorInstallation) checkBoundEndpoint(context.Context) path.Hop {
	name := in.url.Host
	switch {
	case in.boundErr != nil:
		return refusedHop("BoundEndpoint "+name, in.boundErr)
	case in.bound == nil && (in.report.HasStatus(path.HopOperator, path.Broken) || in.report.HasStatus(path.HopOperator,
		path.Unknown)):
		return path.Hop{Status: path.Skipped, Detail: "there is none"}
	case in.bound == nil:
		return path.Brokenf("", "there is no BoundEndpoint %s", name).AsSymptom()
	case in.bound.Spec.State == "Released":
		return path.Brokenf("", "the BoundEndpoint is Released: its Services are deleted").AsSymptom()
	}
	var h path.Hop
	place := in.bound.Metadata.namespacedName()
	services := in.bound.Status.Conditions.Get("ServicesReady")
	switch {
	case services.Status == "False" &&
		(in.report.HasStatus(path.HopNamespace, path.Broken) || in.report.HasStatus(path.HopService, path.Broken)):
		h = path.Hop{Status: path.Skipped, Detail: fmt.Sprintf("%s has the same reason: %s", place, services.Reason)}
	case services.Status == "False":
		h = path.Brokenf(path.Remedy("BoundEndpoint", services.Reason), "%s (%s)", services.Message, services.Reason)
	case in.boundPort() == 0:
		h = path.Brokenf("", "BoundEndpoint %s has no port %d", place, in.url.Port).AsSymptom()
	case services.Status == "":
		h = path.Unknownf("BoundEndpoint %s has no conditions yet", place)
	default:
		h = in.bound.Status.Conditions.Ready(place)
	}
	return h.With(in.bound.Status.Conditions.Evidence("BoundEndpoint", place)...)
}
