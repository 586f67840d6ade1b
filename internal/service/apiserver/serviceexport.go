// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// readServiceExport reads the export of an endpoint; nil when it is absent or null. What is left
// out is empty, but the type, which is ClusterSetIP, the session affinity, which is None, and the
// protocol of a port, which is TCP.
func readServiceExport(o *object) *account.ServiceExport {
	inner, _ := o.object("service_export")
	if inner == nil {
		return nil
	}
	s := &account.ServiceExport{Type: cmp.Or(textOf(inner.text("type")), account.ExportClusterSetIP),
		SessionAffinity:       cmp.Or(textOf(inner.text("session_affinity")), "None"),
		InternalTrafficPolicy: textOf(inner.text("internal_traffic_policy")),
		TrafficDistribution:   textOf(inner.text("traffic_distribution"))}
	if seconds := inner.integerOrNull("session_affinity_seconds"); seconds != nil {
		s.SessionAffinitySeconds = new(limit32(*seconds))
	}
	for _, port := range inner.objects("ports") {
		s.Ports = append(s.Ports, readExportPort(port))
	}
	if families := inner.texts("ip_families"); families != nil {
		s.IPFamilies = *families
	}
	s.Labels, s.Annotations = inner.metadata("labels"), inner.metadata("annotations")
	if ready := inner.boolean("ready"); ready != nil {
		s.Ready = *ready
	}
	inner.rejectUnknown()
	return s
}

// metadata reads labels or annotations.
func (o *object) metadata(name string) map[string]string {
	if texts := mapOf(o, name, "must be an object whose values are strings", (*object).text); texts != nil {
		return *texts
	}
	return nil
}

// integerOrNull reads a whole number: nil when absent or null.
func (o *object) integerOrNull(name string) *int {
	if string(o.fields[name]) == "null" {
		delete(o.fields, name)
		return nil
	}
	return o.integer(name)
}

func readExportPort(o *object) account.ServiceExportPort {
	p := account.ServiceExportPort{Name: textOf(o.text("name")), Protocol: cmp.Or(textOf(o.text("protocol")), "TCP"),
		AppProtocol: textOf(o.text("app_protocol"))}
	if number := o.integer("port"); number != nil {
		p.Port = limit32(*number)
	}
	o.rejectUnknown()
	return p
}

// limit32 returns n as far as it fits; what does not is no valid value either.
func limit32(n int) int32 { return int32(min(max(n, -1), 1<<20)) }

// objects reads a list of objects; nil when it is absent or null.
func (o *object) objects(name string) []*object {
	value, null, present := o.takeField(name)
	var items []json.RawMessage
	if !present || null || !o.decode(name, value, &items, "must be a list of objects") {
		return nil
	}
	all := make([]*object, 0, len(items))
	for i, item := range items {
		at := name + "[" + strconv.Itoa(i) + "]"
		if item[0] != '{' {
			o.reject(at, string(item), "must be an object")
			continue
		}
		all = append(all, o.body.object(fmt.Sprintf("%s%s.", o.path, at), item))
	}
	return all
}

// rejectExport rejects a service_export from keys of other scopes than exporter, which say what
// clusters export by nothing else.
func (f *endpointFields) rejectExport(c *call, b *body) {
	if f.ServiceExport != nil && !c.Key.IsExporter() {
		b.top.reject("service_export", "", "needs a key with the scope exporter; leave it out")
	}
}
