// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ServiceExport is what a cluster exports under the name of a Service (KEP-1645): the fields that
// every cluster of the account derives its ServiceImport from. The endpoint that has it is of type
// cloud and of BindingClusterset, with the URL of ServiceExportURL; the endpoint's CreatedAt, then
// its ID, decide which of several exports of one name takes precedence. It carries no traffic: each
// TCP port, of a headless Service each one of each pod, has endpoints of type agent of its own.
type ServiceExport struct {
	Type  string              `json:"type"`  // ExportClusterSetIP or ExportHeadless
	Ports []ServiceExportPort `json:"ports"` // each name, and each number of a protocol, once
	// SessionAffinity is None or ClientIP, for SessionAffinitySeconds; nil = not set
	SessionAffinity        string            `json:"session_affinity"`
	SessionAffinitySeconds *int32            `json:"session_affinity_seconds"`
	InternalTrafficPolicy  string            `json:"internal_traffic_policy"` // Cluster, Local or ""
	TrafficDistribution    string            `json:"traffic_distribution"`    // "" = not set
	IPFamilies             []string          `json:"ip_families"`             // IPv4, IPv6, in the Service's order
	Labels                 map[string]string `json:"labels"`                  // exported ones
	Annotations            map[string]string `json:"annotations"`
	// Ready reports whether an endpoint of the Service was ready lately.
	Ready bool `json:"ready"`
	// Pods are those of a headless Service. A TCP port of one is bound at the PodPort of the export.
	Pods []ServiceExportPod `json:"pods,omitempty"`
}

// ServiceExportPod is a pod of a headless Service.
type ServiceExportPod struct {
	Hostname string `json:"hostname"` // a DNS label that no other pod of the export has
	Ready    bool   `json:"ready"`
}

// ServiceExportPort is a port of the Service.
type ServiceExportPort struct {
	Name        string `json:"name"`     // may be "" for a single port
	Protocol    string `json:"protocol"` // TCP, UDP or SCTP
	Port        int32  `json:"port"`
	AppProtocol string `json:"app_protocol"` // "" = not set
}

// Values of ServiceExport.Type.
const (
	ExportClusterSetIP = "ClusterSetIP"
	ExportHeadless     = "Headless"
)

// Limits of a ServiceExport.
const (
	MaxExportPorts   = 100
	MaxExportPods    = 64
	MaxServiceExport = 32 << 10 // bytes of the whole, as JSON
)

// SchemeService is the scheme of ServiceExportURL.
const SchemeService = "service"

// ServiceExportURL is the URL of the endpoint that is the export of a Service by the cluster with
// the id: service://<name>.<namespace>.<cluster id>.
func ServiceExportURL(name, namespace, clusterID string) EndpointURL {
	return EndpointURL{Scheme: SchemeService, Host: name + "." + namespace + "." + clusterID}
}

// ExportedPortURL is the URL of a TCP port of an exported Service:
// tcp://<name>.<namespace>.<cluster id>:<port>.
func ExportedPortURL(name, namespace, clusterID string, port int) EndpointURL {
	return EndpointURL{Scheme: "tcp", Host: name + "." + namespace + "." + clusterID, Port: port}
}

// PodPort returns the port of the URL at which the port of a pod of a headless Service is bound, a
// number that exporters and importers derive from its hostname. Several pods may have the same one;
// an export lists one of them.
func PodPort(hostname string, port int32) int32 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s:%d", hostname, port))
	return 1 + int32(binary.BigEndian.Uint32(sum[:])%65535)
}

// BoundAt returns the ports of the URLs at which a port of the export is bound: its own number, or
// a PodPort for each pod of a headless Service; none of a protocol that is not carried.
func (s *ServiceExport) BoundAt(p ServiceExportPort) (ports []int32) {
	switch {
	case p.Protocol != "TCP":
	case s.Type != ExportHeadless:
		return []int32{p.Port}
	default:
		for _, pod := range s.Pods {
			ports = append(ports, PodPort(pod.Hostname, p.Port))
		}
	}
	return ports
}

// ClusterID returns the third label of the hostname of an endpoint of BindingClusterset: the id of
// the cluster that exports it. An id is one cluster's in the account.
func (u EndpointURL) ClusterID() string {
	_, rest, _ := strings.Cut(u.Host, ".")
	_, id, _ := strings.Cut(rest, ".")
	return id
}

// ValidClusterID reports whether id can be a cluster's: a DNS label in lower case (KEP-2149).
func ValidClusterID(id string) bool { return validLabel(id) }

// validClustersetHost reports whether host is <service>.<namespace>.<cluster id>.
func validClustersetHost(host string) bool {
	name, rest, _ := strings.Cut(host, ".")
	namespace, id, ok := strings.Cut(rest, ".")
	return ok && ValidKubernetesHostname(name+"."+namespace) && ValidClusterID(id)
}

// Normal returns a copy whose empty lists and maps are not nil. It is nil for nil.
func (s *ServiceExport) Normal() *ServiceExport {
	if s == nil {
		return nil
	}
	n := *s
	n.Ports, n.IPFamilies = append([]ServiceExportPort{}, s.Ports...), append([]string{}, s.IPFamilies...)
	n.Pods = slices.Clone(s.Pods)
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	maps.Copy(n.Labels, s.Labels)
	maps.Copy(n.Annotations, s.Annotations)
	if s.SessionAffinitySeconds != nil {
		n.SessionAffinitySeconds = new(*s.SessionAffinitySeconds)
	}
	return &n
}

// checkServiceExport checks an endpoint of type cloud: those of BindingClusterset, and no others,
// have an export, and neither pooling nor a traffic policy nor a backend.
func (r *rules) checkServiceExport(e *Endpoint, u EndpointURL) {
	if !slices.Contains(e.Bindings, BindingClusterset) {
		if e.ServiceExport != nil {
			r.add("service_export", "", "goes with the binding clusterset; leave it out")
		}
		return
	}
	if u.Scheme != SchemeService {
		r.add("url", e.URL, "must be service://<name>.<namespace>.<cluster id>: exporters bind the ports")
	}
	r.checkExportOwner(e.Owner, u)
	r.rejectTraffic(e.PoolingEnabled, e.TrafficPolicy, e.BackendID)
	if e.ServiceExport == nil {
		r.add("service_export", "", "is required with the binding clusterset")
		return
	}
	e.ServiceExport.check(r)
}

// rejectTraffic rejects pooling, a traffic policy and a backend.
func (r *rules) rejectTraffic(pools bool, policy, backendID string) {
	const rule = "does not go with the binding clusterset; leave it out"
	if pools {
		r.add("pooling_enabled", "true", rule)
	}
	if policy != "" {
		r.add("traffic_policy", "", rule)
	}
	if backendID != "" {
		r.add("backend_id", backendID, rule)
	}
}

// exportedPort checks a bind of BindingClusterset.
func (r *rules) exportedPort(b *BindRequest) {
	r.checkExportOwner(b.Owner, b.ParsedURL())
	if b.Scheme == SchemeService {
		r.add("url", b.URL, "the scheme must be tcp")
	}
	r.rejectTraffic(b.PoolingEnabled, b.TrafficPolicy, "")
}

// checkExportOwner checks that an endpoint of BindingClusterset has the owner that its URL names.
func (r *rules) checkExportOwner(o *Owner, u EndpointURL) {
	switch {
	case o == nil:
		r.add("owner", "", "is required with the binding clusterset: the ServiceExport in its cluster")
	case !strings.HasPrefix(u.Host, o.Name+"."+o.Namespace+"."):
		r.add("owner", o.Object(), "must be the ServiceExport that the url names: "+u.Host)
	}
}

// check lists the rules that the export breaks. A ServiceImport and a Service that are made of one
// that breaks none are valid in every cluster.
func (s *ServiceExport) check(r *rules) {
	if s.Type != ExportClusterSetIP && s.Type != ExportHeadless {
		r.add("service_export.type", s.Type, "must be ClusterSetIP or Headless")
	}
	text, err := json.Marshal(s)
	if err != nil || len(text) > MaxServiceExport {
		r.add("service_export", "", fmt.Sprintf("has %d bytes as JSON; at most %d are allowed: export fewer labels "+
			"and annotations", len(text), MaxServiceExport))
		return
	}
	s.checkPorts(r)
	s.checkPods(r)
	s.checkTraffic(r)
	s.checkMetadata(r)
}

func (s *ServiceExport) checkPorts(r *rules) {
	if n := len(s.Ports); n > MaxExportPorts {
		r.add("service_export.ports", "", fmt.Sprintf("has %d ports; at most %d are allowed", n, MaxExportPorts))
		return
	}
	names, numbers := map[string]bool{}, map[ServiceExportPort]bool{}
	for i, p := range s.Ports {
		field := fmt.Sprintf("service_export.ports[%d].", i)
		switch {
		case p.Name == "" && len(s.Ports) > 1:
			r.add(field+"name", "", "is required with several ports")
		case p.Name != "" && !validLabel(p.Name):
			r.add(field+"name", p.Name, "must be a DNS label: at most 63 characters of a-z, 0-9 and '-'")
		case names[p.Name]:
			r.add(field+"name", p.Name, "is given twice")
		}
		if !slices.Contains([]string{"TCP", "UDP", "SCTP"}, p.Protocol) {
			r.add(field+"protocol", p.Protocol, "must be TCP, UDP or SCTP")
		}
		number := ServiceExportPort{Protocol: p.Protocol, Port: p.Port}
		switch {
		case p.Port < 1 || p.Port > 65535:
			r.add(field+"port", fmt.Sprint(p.Port), "must be a number from 1 to 65535")
		case numbers[number]:
			r.add(field+"port", fmt.Sprint(p.Port), "is given twice with the protocol "+p.Protocol)
		}
		if p.AppProtocol != "" && !validQualifiedName(p.AppProtocol) {
			r.add(field+"app_protocol", p.AppProtocol, ruleQualifiedName)
		}
		names[p.Name], numbers[number] = true, true
	}
}

func (s *ServiceExport) checkPods(r *rules) {
	switch {
	case len(s.Pods) > MaxExportPods:
		r.add("service_export.pods", "", fmt.Sprintf("has %d pods; at most %d are allowed", len(s.Pods), MaxExportPods))
		return
	case len(s.Pods) > 0 && s.Type != ExportHeadless:
		r.add("service_export.pods", "", "goes with the type Headless; leave it out")
	}
	names := map[string]bool{}
	for i, p := range s.Pods {
		field := fmt.Sprintf("service_export.pods[%d].hostname", i)
		switch {
		case !validLabel(p.Hostname):
			r.add(field, p.Hostname, "must be a DNS label: at most 63 characters of a-z, 0-9 and '-'")
		case names[p.Hostname]:
			r.add(field, p.Hostname, "is given twice")
		}
		names[p.Hostname] = true
	}
}

func (s *ServiceExport) checkTraffic(r *rules) {
	if s.SessionAffinity != "None" && s.SessionAffinity != "ClientIP" {
		r.add("service_export.session_affinity", s.SessionAffinity, "must be None or ClientIP")
	}
	if n := s.SessionAffinitySeconds; n != nil && (*n < 1 || *n > 86400 || s.SessionAffinity != "ClientIP") {
		r.add("service_export.session_affinity_seconds", fmt.Sprint(*n),
			"must be from 1 to 86400, and goes with the session_affinity ClientIP")
	}
	if !slices.Contains([]string{"", "Cluster", "Local"}, s.InternalTrafficPolicy) {
		r.add("service_export.internal_traffic_policy", s.InternalTrafficPolicy, "must be Cluster, Local or empty")
	}
	r.text("service_export.traffic_distribution", s.TrafficDistribution, MaxShortText)
	for i, f := range s.IPFamilies {
		if f != "IPv4" && f != "IPv6" || slices.Contains(s.IPFamilies[:i], f) {
			r.add(fmt.Sprintf("service_export.ip_families[%d]", i), f, "must be IPv4 or IPv6, each at most once")
		}
	}
}

const (
	ruleQualifiedName = "must be [<DNS subdomain>/]<name>, the name 1 to 63 letters, digits, '-', '_' and '.', which " +
		"begins and ends with a letter or digit"
	ruleLabelValue = "the value must be empty, or 1 to 63 letters, digits, '-', '_' and '.', which begins and ends " +
		"with a letter or digit"
)

// checkMetadata checks labels and annotations by the rules of Kubernetes.
func (s *ServiceExport) checkMetadata(r *rules) {
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		if !validQualifiedName(key) {
			r.add("service_export.labels", key, ruleQualifiedName)
		} else if value := s.Labels[key]; value != "" && !validName(value) {
			r.add("service_export.labels."+key, value, ruleLabelValue)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
		if !validQualifiedName(strings.ToLower(key)) {
			r.add("service_export.annotations", key, ruleQualifiedName)
		}
		r.text("service_export.annotations."+key, s.Annotations[key], MaxServiceExport)
	}
}

// validQualifiedName reports whether Kubernetes accepts s as the key of a label.
func validQualifiedName(s string) bool {
	prefix, name, ok := strings.Cut(s, "/")
	if !ok {
		return validName(s)
	}
	return validSubdomain(prefix) && validName(name)
}

// validName reports whether Kubernetes accepts s as a value of a label that is not empty.
func validName(s string) bool {
	alphanumeric := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	if len(s) == 0 || len(s) > 63 || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
