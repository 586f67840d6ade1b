// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
)

// Process is what every process has: its listeners, its cluster and its log.
type Process struct {
	MetricsAddr, HealthAddr string       // MetricsAddr and HealthAddr are listened on; empty: none.
	Kubernetes              *rest.Config // Kubernetes configures the cluster's client.
	Logger                  *slog.Logger
}

// Check checks the listen addresses.
func (o *Process) Check(c *Checker) {
	for _, l := range [][2]string{{"--metrics-addr", o.MetricsAddr}, {"--health-addr", o.HealthAddr}} {
		_, port, err := net.SplitHostPort(l[1])
		if n, portErr := strconv.Atoi(port); l[1] != "" && (err != nil || portErr != nil || n < 0 || n > 65535) {
			c.Reject(l[0], l[1], "give an address to listen on as [HOST]:PORT, or nothing")
		}
	}
}

// Access is who may call the endpoints.
type Access struct {
	// DefaultAccess holds for endpoints that no EndpointAccess selects; empty: EndpointAccess
	// objects are not read, all callers are admitted, and no NetworkPolicies are written or deleted.
	DefaultAccess endpointaccess.Default
	// NetworkPolicies makes the manager write the forwarders' NetworkPolicies; without it, earlier
	// ones are deleted. A forwarder without pod identity leaves the decision about callers to them.
	NetworkPolicies bool
}

// Check checks the default.
func (o *Access) Check(c *Checker) {
	if o.DefaultAccess != "" && !o.DefaultAccess.Valid() {
		c.Reject("--default-access", string(o.DefaultAccess),
			fmt.Sprintf("give %s or %s", endpointaccess.Allow, endpointaccess.Deny))
	}
}

// ResolvConf is the resolver configuration of this pod.
const ResolvConf = "/etc/resolv.conf"

// ClusterDomain checks the domain, or reads it from the search list that kubelet gives every pod:
// "<namespace>.svc.<domain> svc.<domain> <domain>".
func ClusterDomain(domain, resolvConf string) (string, error) {
	if domain != "" {
		if errs := validation.IsDNS1123Subdomain(domain); len(errs) > 0 {
			return "", account.Invalid("--cluster-domain", domain, "give a DNS domain, such as cluster.local")
		}
		return domain, nil
	}
	b, _ := os.ReadFile(resolvConf) // without it the default applies
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, search := range fields[1:] {
			if found, ok := strings.CutPrefix(strings.TrimSuffix(search, "."), "svc."); ok {
				return found, nil
			}
		}
	}
	return "cluster.local", nil
}
