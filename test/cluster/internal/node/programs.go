// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

// The command lines of the node's programs.

func (n *node) pki(name string) string { return n.c.Path("pki", name) }

func (n *node) etcd() []string {
	return []string{
		"etcd", "--name=node", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=node=http://127.0.0.1:2380",
	}
}

func (n *node) apiserver() []string {
	return []string{
		"kube-apiserver", "--advertise-address=" + nodeIP, "--secure-port=6443", "--etcd-servers=http://127.0.0.1:2379",
		"--service-cluster-ip-range=" + joined(families(n.c.Options), func(f family) string { return f.Services }),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--client-ca-file=" + n.pki("ca.crt"), "--tls-cert-file=" + n.pki("apiserver.crt"),
		"--tls-private-key-file=" + n.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + n.pki("sa.pub"), "--service-account-signing-key-file=" + n.pki("sa.key"),
		"--kubelet-certificate-authority=" + n.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + n.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + n.pki("apiserver-kubelet-client.key"),
		"--requestheader-client-ca-file=" + n.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + n.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + n.pki("front-proxy-client.key"),
	}
}

// asClient are the flags of a controller that has a kubeconfig of its own name.
func (n *node) asClient(name string) []string {
	kubeconfig := n.pki(name + ".kubeconfig")
	return []string{
		name, "--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
	}
}

func (n *node) controllerManager() []string {
	return append(n.asClient("kube-controller-manager"),
		"--use-service-account-credentials=true", "--service-account-private-key-file="+n.pki("sa.key"),
		"--root-ca-file="+n.pki("ca.crt"),
		"--cluster-signing-cert-file="+n.pki("ca.crt"), "--cluster-signing-key-file="+n.pki("ca.key"))
}

func (n *node) scheduler() []string { return n.asClient("kube-scheduler") }

func (n *node) kubelet() []string {
	return []string{
		"kubelet", "--config=" + n.c.Path("conf", "kubelet.yaml"), "--kubeconfig=" + n.pki("kubelet.kubeconfig"),
		"--hostname-override=" + nodeName, "--node-ip=" + joined(families(n.c.Options), func(f family) string {
			return f.Node
		}), "--root-dir=/var/lib/kubelet",
	}
}
