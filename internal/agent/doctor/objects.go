// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/path"
)

// The marks of the operator's objects, as internal/operator/controller/installation writes them; a
// test compares the two.
const (
	labelInstallation      = "bindings.fairlead.dev/installation"
	annotationPlace        = "bindings.fairlead.dev/place"
	annotationInstallation = "bindings.fairlead.dev/installed-by"
	annotationHostname     = "bindings.fairlead.dev/hostname"
)

// meta and the types below are the parts of Kubernetes objects that the checks read. All fields are
// optional: an object may be of any version, or damaged.
type meta struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	Generation        int64             `json:"generation"`
	Namespace         string            `json:"namespace"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
	OwnerReferences   []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"ownerReferences"`
}

func (m meta) namespacedName() string { return m.Namespace + "/" + m.Name }

// isMarked reports whether the object has the marks of an operator at its own name.
func (m meta) isMarked() bool {
	return m.Labels[labelInstallation] != "" && m.Annotations[annotationPlace] == m.namespacedName()
}

type namespace struct {
	Metadata meta `json:"metadata"`
	Status   struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type service struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Type         string            `json:"type"`
		ExternalName string            `json:"externalName"`
		ClusterIP    string            `json:"clusterIP"`
		ClusterIPs   []string          `json:"clusterIPs"`
		Selector     map[string]string `json:"selector"`
		Ports        []servicePort     `json:"ports"`
	} `json:"spec"`
}

type servicePort struct {
	Name       string `json:"name"`
	Port       int    `json:"port"`
	TargetPort any    `json:"targetPort"` // a number; a name in a changed Service
}

// port returns the port of this number, or nil.
func (s *service) port(number int) *servicePort {
	for i := range s.Spec.Ports {
		if s.Spec.Ports[i].Port == number {
			return &s.Spec.Ports[i]
		}
	}
	return nil
}

// target returns the target port, 0 where it is no number.
func (p *servicePort) target() int {
	n, _ := p.TargetPort.(float64)
	return int(n)
}

func (s *service) portList() string {
	list := make([]string, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		list[i] = strconv.Itoa(p.Port)
	}
	return strings.Join(list, ", ")
}

type endpointSlice struct {
	Metadata  meta `json:"metadata"`
	Endpoints []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready       *bool `json:"ready"`
			Terminating *bool `json:"terminating"`
		} `json:"conditions"`
		TargetRef struct {
			Name string `json:"name"`
		} `json:"targetRef"`
	} `json:"endpoints"`
	Ports []importPort `json:"ports"`
}

// ready counts the addresses of ready endpoints.
func (s *endpointSlice) ready() int {
	n := 0
	for _, e := range s.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			n += len(e.Addresses)
		}
	}
	return n
}

type podIP struct {
	IP string `json:"ip"`
}

type pod struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		ServiceAccountName string `json:"serviceAccountName"`
		HostNetwork        bool   `json:"hostNetwork"`
		Containers         []struct {
			Args []string `json:"args"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase             string          `json:"phase"`
		PodIP             string          `json:"podIP"`
		PodIPs            []podIP         `json:"podIPs"`
		Conditions        path.Conditions `json:"conditions"`
		ContainerStatuses []struct {
			Name         string `json:"name"`
			RestartCount int    `json:"restartCount"`
			State        struct {
				Waiting *struct {
					Reason  string `json:"reason"`
					Message string `json:"message"`
				} `json:"waiting"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

func (p *pod) ready() bool {
	return p.Status.Conditions.Get("Ready").Status == "True" && p.Metadata.DeletionTimestamp == nil
}

// notReadyReason explains why a pod is not ready.
func (p *pod) notReadyReason() string {
	if p.Metadata.DeletionTimestamp != nil {
		return "is being deleted"
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return joinNonEmpty(": ", w.Reason, w.Message)
		}
	}
	for _, typ := range []string{"PodScheduled", "Ready"} {
		if c := p.Status.Conditions.Get(typ); c.Status == "False" && c.Reason != "" {
			return joinNonEmpty(": ", c.Reason, c.Message)
		}
	}
	return "is " + p.Status.Phase + " and not ready"
}

// projectionSlices is the projection in which the target Service has EndpointSlices.
const projectionSlices = "endpointSlice"

type boundEndpoint struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		ProjectionID string `json:"projectionID"`
		State        string `json:"state"`
		Endpoints    []struct {
			ID  string `json:"id"`
			URL string `json:"url"`
		} `json:"endpoints"`
		Ports []struct {
			Port        int        `json:"port"`
			Scheme      string     `json:"scheme"`
			TargetPort  int        `json:"targetPort"`
			State       string     `json:"state"`
			RemoveAfter *time.Time `json:"removeAfter"`
		} `json:"ports"`
	} `json:"spec"`
	Status struct {
		Conditions path.Conditions `json:"conditions"`
		ClusterIP  string          `json:"clusterIP"`
		Target     string          `json:"target"`
		Sealed     string          `json:"sealed"`     // by what its ports are sealed: "no,pinned"
		Forwarders string          `json:"forwarders"` // how many listen, of how many: "2/2"
		Projection string          `json:"projection"` // projectionSlices, or else by ExternalName
	} `json:"status"`
}

type kubernetesOperator struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		BindingEnabled   bool   `json:"bindingEnabled"`
		EndpointSelector string `json:"endpointSelector"`
	} `json:"spec"`
	Status struct {
		OperatorID string          `json:"operatorID"`
		AccountID  string          `json:"accountID"`
		Legs       string          `json:"legs"`
		Conditions path.Conditions `json:"conditions"`
	} `json:"status"`
}

type agentEndpoint struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		URL      string `json:"url"`
		Upstream struct {
			URL string `json:"url"`
		} `json:"upstream"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64           `json:"observedGeneration"`
		Conditions         path.Conditions `json:"conditions"`
	} `json:"status"`
}

// upstream returns the Service that spec.upstream.url names, and its port; 0 where it has none.
func (a *agentEndpoint) upstream() (namespace, name string, port int) {
	scheme, rest, _ := strings.Cut(a.Spec.Upstream.URL, "://")
	host, number, err := net.SplitHostPort(strings.TrimSuffix(rest, "/"))
	if err != nil {
		host, number = strings.TrimSuffix(rest, "/"), map[string]string{"http": "80", "https": "443"}[scheme]
	}
	port, _ = strconv.Atoi(number)
	parts := strings.SplitN(host, ".", 3)
	if len(parts) > 1 {
		return parts[1], parts[0], port
	}
	return a.Metadata.Namespace, parts[0], port
}

// Marks of the Multi-Cluster Services API.
const (
	labelServiceName   = "multicluster.kubernetes.io/service-name"
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"
	annotationDerived  = "multicluster.kubernetes.io/derived-service"
)

// conditionImports is the condition of a KubernetesOperator with clusterset.enabled.
const conditionImports = "ServiceImportsReady"

type serviceImport struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Type  string       `json:"type"`
		IPs   []string     `json:"ips"`
		Ports []importPort `json:"ports"`
	} `json:"spec"`
	Status struct {
		Clusters []struct {
			Cluster string `json:"cluster"`
		} `json:"clusters"`
		Conditions path.Conditions `json:"conditions"`
	} `json:"status"`
}

// importPort is a port of a ServiceImport, or of a Service or an EndpointSlice.
type importPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

func (p importPort) String() string { return fmt.Sprintf("%d/%s", p.Port, p.Protocol) }

func (i *serviceImport) clusters() []string {
	var ids []string
	for _, c := range i.Status.Clusters {
		ids = append(ids, c.Cluster)
	}
	return ids
}

func (i *serviceImport) portList() string {
	var list []string
	for _, p := range i.Spec.Ports {
		list = append(list, p.String())
	}
	return strings.Join(list, ", ")
}

type serviceExport struct {
	Metadata meta `json:"metadata"`
	Status   struct {
		Conditions path.Conditions `json:"conditions"`
	} `json:"status"`
}

type configMap struct {
	Data map[string]string `json:"data"`
}

type list[T any] struct {
	Items []T `json:"items"`
}

// installationID is the value of labelInstallation for "<namespace>/<release>".
func installationID(place string) string {
	sum := sha256.Sum256([]byte(place))
	return hex.EncodeToString(sum[:16])
}

func joinNonEmpty(separator string, parts ...string) string {
	var filled []string
	for _, p := range parts {
		if p != "" {
			filled = append(filled, p)
		}
	}
	return strings.Join(filled, separator)
}
