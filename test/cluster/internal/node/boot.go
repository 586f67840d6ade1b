// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const pollInterval = 50 * time.Millisecond

// boot starts the programs in their order and waits until CoreDNS answers.
func (n *node) boot(ctx context.Context) error {
	for _, args := range [][]string{n.etcd(), {"containerd", "--config", n.c.Path("conf", "containerd.toml")},
		n.apiserver()} {
		if err := n.procs.keep(args...); err != nil {
			return err
		}
	}
	images := make(chan error, 1)
	go func() { images <- n.importImages(ctx) }()
	if err := n.waitAPI(ctx); err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	n.say(eventStep, "API server ready")
	if err := n.enforceNetworkPolicies(ctx); err != nil {
		return fmt.Errorf("waiting for the rules of NetworkPolicies: %w", err)
	}
	for _, args := range [][]string{n.controllerManager(), n.scheduler(), n.kubelet(),
		{"kube-proxy", "--config=" + n.c.Path("conf", "kube-proxy.yaml")}} {
		if err := n.procs.keep(args...); err != nil {
			return err
		}
	}
	if err := n.kubectl(ctx, "create", "--validate=false", "-f", n.c.Path("conf", "system.yaml")); err != nil {
		return err
	}
	if err := <-images; err != nil {
		return fmt.Errorf("importing the images: %w", err)
	}
	if err := n.kubectl(ctx, "wait", "--for=create", "node/"+nodeName, "--timeout=120s"); err != nil {
		return err
	}
	if err := n.kubectl(ctx, "wait", "--for=condition=Ready", "node/"+nodeName, "--timeout=120s"); err != nil {
		return err
	}
	n.say(eventStep, "node Ready")
	return n.kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
}

// enforceNetworkPolicies starts the enforcer, if it is wanted, and waits for its first rules: pods
// start later.
func (n *node) enforceNetworkPolicies(ctx context.Context) error {
	if !n.c.Options.NetworkPolicies {
		return nil
	}
	rules := n.c.Path("log", NetworkPoliciesCommand+".nft")
	if err := n.procs.keepAs(NetworkPoliciesCommand, "/proc/self/exe", NetworkPoliciesCommand, n.c.Kubeconfig(),
		rules); err != nil {
		return err
	}
	return n.poll(ctx, func() error {
		_, err := os.Stat(rules)
		return err
	})
}

func (n *node) kubectl(ctx context.Context, args ...string) error {
	return n.orFailing(n.procs.run(ctx, "boot", append([]string{"kubectl"}, args...)...))
}

// orFailing prefers the reason why a program of the node keeps ending to what followed from it.
func (n *node) orFailing(err error) error {
	if err == nil {
		return nil
	}
	if failing := n.procs.failing(); failing != nil {
		return failing
	}
	return err
}

// importImages gives containerd the base images and those that `up` packed from programs of this
// machine.
func (n *node) importImages(ctx context.Context) error {
	err := n.poll(ctx, func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", "/run/containerd/containerd.sock")
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	archives, err := filepath.Glob(n.c.Path(HostImages, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range append([]string{filepath.Join(n.c.Images, "images.tar")}, archives...) {
		if err := n.procs.run(ctx, "images", ImportCommand(archive)...); err != nil {
			return err
		}
	}
	return os.RemoveAll(n.c.Path(HostImages)) // containerd has them
}

// HostImages is the folder, in the cluster's, of the archives that `up` packs from programs of this
// machine.
const HostImages = "host-images"

// ImportCommand is what gives the node the images of an archive, "-" being standard input.
func ImportCommand(archive string) []string {
	return []string{"ctr", "--namespace", "k8s.io", "images", "import", "--snapshotter", "overlayfs", archive}
}

func (n *node) waitAPI(ctx context.Context) error {
	ca, err := os.ReadFile(n.c.Path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cert, err := tls.LoadX509KeyPair(n.c.Path("pki", "apiserver-kubelet-client.crt"),
		n.c.Path("pki", "apiserver-kubelet-client.key"))
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert},
			MinVersion: tls.VersionTLS12},
	}}
	defer client.CloseIdleConnections()
	return n.poll(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+nodeIP+":6443/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("/readyz answers %s: %s", resp.Status, body)
		}
		return err
	})
}

// poll tries again until there is no error, the time is over or a program keeps ending.
func (n *node) poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if failing := n.procs.failing(); failing != nil {
			return failing
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}
