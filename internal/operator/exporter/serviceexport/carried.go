// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// ConditionCarried is True when every port of the export can be called through its import.
const ConditionCarried = "fairlead.dev/Carried"

// Reasons of ConditionCarried.
const (
	ReasonCarried     = "Carried"
	ReasonPartial     = "PartlyCarried" // some ports are not carried
	ReasonNotCarried  = "NotCarried"    // no port is carried
	ReasonHeadless    = "Headless"
	ReasonNoPorts     = "NoPorts"
	ReasonUnusable    = "EndpointsNotUsed" // of the Service; no connection reaches one
	ReasonTypeIgnored = "TypeConflict"     // an older export is of another type
)

// carried returns the ConditionCarried of an export. merged is the import that the account made of
// all clusters' exports; nil while it is not known.
func carried(found *resolution, merged *clusterset.Import) metav1.Condition {
	no := func(reason, format string, args ...any) metav1.Condition {
		return status.Condition(ConditionCarried, "", "", status.Problemf(reason, format, args...))
	}
	s := found.service
	switch {
	case s.Type == account.ExportHeadless:
		return no(ReasonHeadless,
			"a headless Service is imported by its name and ports only: no connection is carried. "+
				"Export a Service with a cluster IP")
	case len(s.Ports) == 0:
		return no(ReasonNoPorts, "the Service has no ports")
	case merged != nil && merged.Spec.Type != s.Type:
		return no(ReasonTypeIgnored, "the import is of type %s, as the oldest export, of cluster %s: nothing of this "+
			"cluster is carried", merged.Spec.Type, merged.Exports[0].ClusterID)
	}
	var missing []string
	count := 0
	for _, p := range s.Ports {
		switch {
		case p.Protocol != string(corev1.ProtocolTCP):
			missing = append(missing, portName(p)+" is listed, but only TCP is carried")
		case merged != nil && found.id != "" && !serves(merged, found.id, p):
			missing = append(missing, portName(p)+" is not in the import, as an older export has another port of its "+
				"name or number")
		default:
			count++
		}
	}
	switch {
	case count == 0:
		return no(ReasonNotCarried, "no port is carried: %s", strings.Join(missing, "; "))
	case found.dialing != "" && !found.ready:
		return no(ReasonUnusable, "no endpoint of the Service is used: %s", found.dialing)
	case len(missing) > 0:
		return no(ReasonPartial, "%s", strings.Join(missing, "; "))
	}
	return status.Condition(ConditionCarried, ReasonCarried, "all ports are carried", nil)
}

// serves reports whether the port is in the import as one that the cluster serves. A cluster whose
// export is not in the import yet serves all.
func serves(merged *clusterset.Import, id string, p account.ServiceExportPort) bool {
	if !slices.ContainsFunc(merged.Exports, func(e clusterset.Export) bool { return e.ClusterID == id }) {
		return true
	}
	return slices.ContainsFunc(merged.Ports(id), func(q account.ServiceExportPort) bool {
		return p.Name == q.Name && p.Protocol == q.Protocol && p.Port == q.Port
	})
}

// portName returns a port as messages have it: "udp/53 (dns)".
func portName(p account.ServiceExportPort) string {
	text := fmt.Sprintf("%s/%d", strings.ToLower(p.Protocol), p.Port)
	if p.Name != "" {
		text += " (" + p.Name + ")"
	}
	return text
}

// maxFields is how many refused fields a message names.
const maxFields = 3

// exportFields are the fields of the objects, by those of the account's API.
var exportFields = strings.NewReplacer("service_export.labels", "spec.exportedLabels",
	"service_export.annotations", "spec.exportedAnnotations", "service_export.ports", "the Service's spec.ports",
	"service_export", "the export")

// messageOf returns the service's sentence, with the object's names of the fields.
func messageOf(err error) string {
	e, ok := errors.AsType[*account.Error](err)
	if !ok || len(e.Fields) == 0 || e.Error() != err.Error() { // a wrapped one says more
		return err.Error()
	}
	var texts []string
	for _, f := range e.Fields[:min(len(e.Fields), maxFields)] {
		f.Field = exportFields.Replace(f.Field)
		texts = append(texts, f.String())
	}
	if more := len(e.Fields) - maxFields; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}

// Limits of the API server for events, in bytes.
const (
	maxEventReason  = 128
	maxEventMessage = 1024
)

// eventReason returns the reason of an event about a condition. Reasons of Conflict are joined by
// commas, which a name in CamelCase cannot have.
func eventReason(c *metav1.Condition) string {
	reason := strings.ReplaceAll(c.Reason, ",", "And")
	return reason[:min(len(reason), maxEventReason)]
}

func eventMessage(message string) string {
	if len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage-len("…")], "") + "…"
}
