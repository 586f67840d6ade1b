// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

func rendered(t *testing.T, name string, o state.Options) string {
	t.Helper()
	text, err := render(name, settings{
		Cluster: &state.Cluster{Dir: `/a "b"`, Options: o}, NodeIP: nodeIP, PodCIDR: podCIDR(o), Families: families(o),
		DNSIP: dnsIP, CNIBin: `/c "d"`, MultiClusterCRDs: "kind: CustomResourceDefinition\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestConfig_ContainsOptions(t *testing.T) {
	t.Parallel()
	plain, stock := rendered(t, "system.yaml", state.Options{}),
		rendered(t, "system.yaml", state.Options{DNSCache: true})
	if strings.Contains(plain, "cache 30") || !strings.Contains(plain, "ttl 5\n") {
		t.Errorf("without the option:\n%s", plain)
	}
	if !strings.Contains(stock, "        cache 30\n        loadbalance") || !strings.Contains(stock, "ttl 30\n") {
		t.Errorf("with the option:\n%s", stock)
	}
	if proxy := rendered(t, "kube-proxy.yaml",
		state.Options{KubeProxyMinSync: 250 * time.Millisecond}); !strings.Contains(
		proxy, "minSyncPeriod: 250ms") {
		t.Errorf("kube-proxy:\n%s", proxy)
	}
	six := state.Options{DualStack: true}
	if cni := rendered(t, "10-node.conflist", six); !json.Valid([]byte(cni)) ||
		!strings.Contains(cni, `[{"subnet": "10.244.0.0/24"}], [{"subnet": "fd44::/64"}]`) {
		t.Errorf("pods' network with two families:\n%s", cni)
	}
	if proxy := rendered(t, "kube-proxy.yaml", six); !strings.Contains(proxy,
		"clusterCIDR: 10.244.0.0/24,fd44::/64\n") {
		t.Errorf("kube-proxy with two families:\n%s", proxy)
	}
}

// TestConfig_MultiCluster compares with an ordinary cluster, which must know nothing of it.
func TestConfig_MultiCluster(t *testing.T) {
	t.Parallel()
	plain := rendered(t, "system.yaml", state.Options{})
	for _, word := range []string{"multicluster", "clusterset", "CustomResourceDefinition"} {
		if strings.Contains(plain, word) {
			t.Errorf("%s without the option:\n%s", word, plain)
		}
	}
	text := rendered(t, "system.yaml", state.Options{MultiCluster: true})
	for _, want := range []string{
		"kind: CustomResourceDefinition\n---\n# What kubeadm would add",
		"\n- {apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}\n---\n",
		"    }\n    clusterset.local:53 {\n        errors\n        kubernetes clusterset.local {\n" +
			"            multicluster clusterset.local\n            ttl 5\n        }\n        loadbalance\n    " +
			"}\n    #",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q with the option:\n%s", want, text)
		}
	}
	if cached := rendered(t, "system.yaml", state.Options{MultiCluster: true, DNSCache: true}); strings.Count(cached,
		"        cache 30\n        loadbalance\n") != 2 {
		t.Errorf("with the cache too:\n%s", cached)
	}
}

func TestConfig_QuotesFolderNames(t *testing.T) {
	t.Parallel()
	if text := rendered(t, "containerd.toml", state.Options{}); !strings.Contains(text, `bin_dirs = ["/c \"d\""]`) {
		t.Error(text)
	}
	if text := rendered(t, "kubelet.yaml", state.Options{}); !strings.Contains(text,
		`clientCAFile: "/a \"b\"/pki/ca.crt"`) {
		t.Error(text)
	}
	if text := rendered(t, "10-node.conflist", state.Options{}); !json.Valid([]byte(text)) {
		t.Error(text)
	}
}

func TestReadProgress(t *testing.T) {
	t.Parallel()
	c := &state.Cluster{Dir: t.TempDir()}
	if p := ReadProgress(c); p.Ready || p.Failed != "" || len(p.Steps) > 0 {
		t.Errorf("before the start: %+v", p)
	}
	f, err := os.Create(filepath.Join(c.Dir, eventsFile))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{c: c, events: f, start: time.Now()}
	n.say(eventStep, "API server ready")
	n.say(eventFailed, "etcd ended 3 times\nits log")
	if _, err := f.WriteString("ready 3.0 half a li"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p := ReadProgress(c)
	if len(p.Steps) != 1 || !strings.HasSuffix(p.Steps[0], " s  API server ready") || p.Ready ||
		p.Failed != "etcd ended 3 times\nits log" {
		t.Errorf("%+v", p)
	}
}
