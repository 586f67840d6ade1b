// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// parseAddress reads "<host>:<port>" of a Ref.
func parseAddress(address string) (Ref, bool) {
	host, text, err := net.SplitHostPort(address)
	port, portErr := strconv.ParseUint(text, 10, 16)
	labels := strings.Split(host, ".")
	pod := ""
	if len(labels) == 4 && labels[3] == "svc" {
		pod, labels = labels[0], labels[1:]
	}
	if err != nil || portErr != nil || len(labels) != 3 {
		return Ref{}, false
	}
	return Ref{Service: types.NamespacedName{Namespace: labels[1], Name: labels[0]}, Port: int32(port), Pod: pod}, true
}

func notAllowed(format string, args ...any) *status.Problem {
	return status.Problemf(v1alpha1.ReasonUpstreamNotAllowed, format, args...)
}

// Parse reads the upstream's URL of an object in the namespace:
// SCHEME://NAME[.NAMESPACE[.svc[.CLUSTERDOMAIN]]][:PORT].
func (rules Rules) Parse(raw, namespace string) (Ref, *status.Problem) {
	scheme, authority, ok := strings.Cut(raw, "://")
	if !ok {
		return Ref{}, notAllowed("upstream.url %q has no scheme: give http://NAME:PORT", account.Shorten(raw))
	}
	host, port, err := splitPort(scheme, strings.TrimSuffix(authority, "/"))
	if err != nil {
		return Ref{}, notAllowed("upstream.url %q: %s", account.Shorten(raw), err)
	}
	ref := Ref{Scheme: scheme, Port: port}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	ref.Service = types.NamespacedName{Namespace: namespace, Name: labels[0]}
	if len(labels) > 1 {
		ref.Service.Namespace = labels[1]
	}
	domain := ""
	if len(labels) > 3 {
		domain = strings.Join(labels[3:], ".")
	}
	switch {
	case net.ParseIP(strings.Trim(host, "[]")) != nil:
		return Ref{}, notAllowed("upstream.url %q is an address; an upstream is a Service of the cluster: give its "+
			"name", account.Shorten(raw))
	case len(labels) > 2 && labels[2] != "svc", domain != "" && domain != rules.ClusterDomain:
		return Ref{}, notAllowed("upstream.url %q names no Service of this cluster: give http://NAME:PORT or "+
			"http://NAME.NAMESPACE.svc.%s:PORT", account.Shorten(raw), rules.ClusterDomain)
	case len(validation.IsDNS1123Label(ref.Service.Name)) > 0,
		len(validation.IsDNS1123Label(ref.Service.Namespace)) > 0:
		return Ref{}, notAllowed("upstream.url %q: %q is not the name of a Service", account.Shorten(raw),
			account.Shorten(host))
	case ref.Service.Namespace != namespace && !rules.CrossNamespace:
		return Ref{}, notAllowed("upstream.url %q is a Service of namespace %s; this exporter admits Services of the "+
			"object's own namespace, %s: make the object there, or set export.crossNamespace",
			account.Shorten(raw), ref.Service.Namespace, namespace)
	}
	return ref, nil
}

// splitPort splits host and port, which is the scheme's own where there is none.
func splitPort(scheme, authority string) (host string, port int32, err error) {
	defaults := map[string]string{"http": "80", "https": "443", "tcp": ""}
	text, known := defaults[scheme]
	if !known {
		return "", 0, fmt.Errorf("the scheme must be http, https or tcp")
	}
	host = authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, text = authority[:i], authority[i+1:]
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return "", 0, fmt.Errorf("the port must be a number from 1 to 65535 without leading zeros")
	}
	return host, int32(n), nil
}
