// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of the message of a conflict; a condition has at most 32 KiB.
const (
	maxMessage  = 8 << 10 // bytes
	maxListed   = 8       // differences of one attribute
	maxValues   = 4       // values of one difference
	maxClusters = 4       // clusters of one value
)

// attributes are the reasons for what exports of one name should agree on, sorted. Families of IP
// addresses are not among them: each cluster's forwarders serve both families, whatever the
// Services have.
var attributes = []v1beta1.ServiceExportConditionReason{
	v1beta1.ServiceExportReasonAnnotationsConflict, v1beta1.ServiceExportReasonInternalTrafficPolicyConflict,
	v1beta1.ServiceExportReasonLabelsConflict, v1beta1.ServiceExportReasonPortConflict,
	v1beta1.ServiceExportReasonSessionAffinityConfigConflict, v1beta1.ServiceExportReasonSessionAffinityConflict,
	v1beta1.ServiceExportReasonTrafficDistributionConflict, v1beta1.ServiceExportReasonTypeConflict,
}

// values returns an export's values of an attribute by what they are of; a missing one is a value,
// too. nil means that the export is not compared.
func (i *Import) values(attribute v1beta1.ServiceExportConditionReason, e *account.ServiceExport) map[string]string {
	switch attribute {
	case v1beta1.ServiceExportReasonAnnotationsConflict:
		return quoted("annotation ", e.Annotations)
	case v1beta1.ServiceExportReasonInternalTrafficPolicyConflict:
		return single("internalTrafficPolicy", cmp.Or(e.InternalTrafficPolicy, "Cluster")) // Kubernetes' default
	case v1beta1.ServiceExportReasonLabelsConflict:
		return quoted("label ", e.Labels)
	case v1beta1.ServiceExportReasonPortConflict:
		return portValues(e)
	case v1beta1.ServiceExportReasonSessionAffinityConfigConflict:
		return affinityTimeout(i, e)
	case v1beta1.ServiceExportReasonSessionAffinityConflict:
		return single("sessionAffinity", e.SessionAffinity)
	case v1beta1.ServiceExportReasonTrafficDistributionConflict:
		return single("trafficDistribution", e.TrafficDistribution)
	default:
		return single("type", e.Type)
	}
}

// Conflict returns the reason and the message of the condition Conflict, the same for every export
// of the import: the reasons of sigs.k8s.io/mcs-api, sorted and joined by commas, and the values
// with their clusters. "" = the exports agree.
func (i *Import) Conflict() (reason, message string) {
	var reasons, found []string
	for _, a := range attributes {
		differences := i.differences(a)
		if len(differences) == 0 {
			continue
		}
		reasons, found = append(reasons, string(a)), append(found, list(differences, maxListed, "; ", ""))
		switch a {
		case v1beta1.ServiceExportReasonPortConflict:
			if left := portsLeftOut(i); left != "" {
				found = append(found, left)
			}
		case v1beta1.ServiceExportReasonTypeConflict:
			found = append(found, "only exports of type "+i.Spec.Type+" are served")
		}
	}
	if len(reasons) == 0 {
		return "", ""
	}
	message = fmt.Sprintf("The export of cluster %s is the oldest and takes precedence. The clusters differ in %s.",
		i.Exports[0].ClusterID, strings.Join(found, "; "))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return strings.Join(reasons, ","), message
}

// differences returns the values of an attribute that the exports do not share, each with its
// clusters, the oldest export's value first.
func (i *Import) differences(attribute v1beta1.ServiceExportConditionReason) []string {
	var (
		clusters []string
		values   []map[string]string
		all      = map[string]bool{}
	)
	for n := range i.Exports {
		if v := i.values(attribute, &i.Exports[n].Spec); v != nil {
			clusters, values = append(clusters, i.Exports[n].ClusterID), append(values, v)
			for what := range v {
				all[what] = true
			}
		}
	}
	var found []string
	for _, what := range slices.Sorted(maps.Keys(all)) {
		var order []string // the values' order
		holders := map[string][]string{}
		for n, v := range values {
			value := v[what]
			if holders[value] == nil {
				order = append(order, value)
			}
			holders[value] = append(holders[value], clusters[n])
		}
		if len(order) < 2 {
			continue
		}
		for n, value := range order {
			order[n] = fmt.Sprintf("%s (%s)", show(value), list(holders[value], maxClusters, ", ", ""))
		}
		found = append(found, what+": "+list(order, maxValues, ", ", " values"))
	}
	return found
}

// show returns a value as messages have it; "" = none.
func show(value string) string {
	if value == "" {
		return "none"
	}
	return account.Shorten(value)
}

// list joins the first items, and counts the others.
func list(items []string, most int, separator, noun string) string {
	if len(items) <= most {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more%s", strings.Join(items[:most], separator), len(items)-most, noun)
}

func single(what, value string) map[string]string { return map[string]string{what: value} }

// quoted returns labels or annotations; an empty value is not a missing one.
func quoted(prefix string, m map[string]string) map[string]string {
	values := make(map[string]string, len(m))
	for key, value := range m {
		values[prefix+key] = strconv.Quote(value)
	}
	return values
}

func portValues(e *account.ServiceExport) map[string]string {
	values := make(map[string]string, len(e.Ports))
	for _, p := range e.Ports {
		what := "port " + p.Name
		if p.Name == "" {
			what = "port without a name"
		}
		values[what] = strings.TrimSuffix(fmt.Sprintf("%d/%s %s", p.Port, p.Protocol, p.AppProtocol), " ")
	}
	return values
}

// portsLeftOut names the ports that cannot stand beside an older one. Those of exports of another
// type are not named: they are left out as a whole.
func portsLeftOut(i *Import) string {
	var left []string
	for n := range i.Exports {
		e := &i.Exports[n]
		if e.Spec.Type != i.Spec.Type {
			continue
		}
		for _, p := range e.Spec.Ports {
			if !slices.ContainsFunc(i.Spec.Ports, samePort(p)) {
				left = append(left, strings.TrimSpace(fmt.Sprintf("%s %d/%s of %s", p.Name, p.Port, p.Protocol,
					e.ClusterID)))
			}
		}
	}
	if len(left) == 0 {
		return ""
	}
	return "left out: " + list(left, maxListed, ", ", "")
}

// affinityTimeout is compared between exports of the session affinity that the import has.
func affinityTimeout(i *Import, e *account.ServiceExport) map[string]string {
	switch {
	case e.SessionAffinity != i.Spec.SessionAffinity:
		return nil
	case e.SessionAffinitySeconds == nil:
		return map[string]string{}
	}
	return single("sessionAffinityConfig", fmt.Sprintf("clientIP.timeoutSeconds %d", *e.SessionAffinitySeconds))
}
