// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
)

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
