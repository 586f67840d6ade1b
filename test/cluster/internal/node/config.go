// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"embed"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/build"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

//go:embed conf
var confFiles embed.FS

// settings are what the templates in conf may use.
type settings struct {
	*state.Cluster
	Node, NodeIP, PodCIDR, DNSIP string
	Families                     []family
	PauseImage, CoreDNSImage     string
	CNIBin, CNIConf              string
	MultiClusterCRDs             string // YAML
}

// writeConfig fills the templates of conf into the cluster's folder of the same name.
func (n *node) writeConfig() error {
	s := settings{
		Cluster: n.c, Node: nodeName, NodeIP: nodeIP, DNSIP: dnsIP, Families: families(n.c.Options),
		PodCIDR:    podCIDR(n.c.Options),
		PauseImage: build.PauseImage, CoreDNSImage: build.CoreDNSImage,
		CNIBin: filepath.Join(n.c.Tools, "cni"), CNIConf: n.c.Path("conf", "cni"),
		MultiClusterCRDs: string(mcscrd.ServiceExportCRD) + "---\n" + string(mcscrd.ServiceImportCRD),
	}
	if err := os.MkdirAll(s.CNIConf, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"containerd.toml", "kubelet.yaml", "kube-proxy.yaml", "system.yaml",
		"cni/10-node.conflist"} {
		text, err := render(filepath.Base(name), s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.c.Path("conf", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(n.c.Path("conf", "resolv.conf"), nil, 0o644)
}

func podCIDR(o state.Options) string {
	return joined(families(o), func(f family) string { return f.Pods })
}

func render(name string, s settings) (string, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"q": quote}).ParseFS(confFiles, "conf/"+name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, s)
	return b.String(), err
}

// quote writes a string as JSON, which YAML and TOML read alike.
func quote(s string) (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}
