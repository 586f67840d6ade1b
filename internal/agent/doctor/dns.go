// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/path"
)

// dnsCheck checks how pods resolve names.
type dnsCheck struct {
	*cluster
	fromPod string // fromPod is Options.FromPod.
}

// check checks the cluster's DNS servers and, with FromPod, resolves the hostname in that pod.
func (d *dnsCheck) check(ctx context.Context, sv *services) path.Hop {
	domain := "cluster.local"
	if _, _, own := parseExternalName(sv.target.service.Spec.ExternalName); own != "" {
		domain = own
	}
	return d.resolved(ctx, d.checkServers(ctx), sv.url.Host, sv.url.Host+".svc."+domain+".", sv.upstream)
}

// resolved returns the hop of the servers or, with a pod to ask, that of what the pod resolves.
func (d *dnsCheck) resolved(ctx context.Context, servers path.Hop, host, full string, upstream *service) path.Hop {
	if d.fromPod == "" || servers.Status == path.Broken {
		return servers
	}
	h := d.resolve(ctx, host, full, upstream)
	h.Evidence = append(append(h.Evidence, servers.Detail), servers.Evidence...)
	return h
}

// checkServers checks the EndpointSlices of the cluster's usual DNS Service.
func (d *dnsCheck) checkServers(ctx context.Context) path.Hop {
	const where = "EndpointSlices labelled k8s-app=kube-dns in kube-system"
	slices, err := listSelected[endpointSlice](ctx, d.cluster, sliceKind, "kube-system", "k8s-app=kube-dns")
	if err != nil {
		return refusedHop("the cluster's DNS ("+where+")", err)
	}
	if len(slices) == 0 {
		return path.Unknownf("there are no %s, so this cluster's DNS is elsewhere; --from-pod NAMESPACE/POD asks "+
			"from a pod", where)
	}
	addresses, _ := readyEndpoints(slices)
	if len(addresses) == 0 {
		return path.Brokenf("see why its pods are not ready:\n"+
			d.command("--namespace kube-system get pods -l k8s-app=kube-dns"),
			"the cluster's DNS has no ready server (%s)", where)
	}
	h := path.OKf("the cluster's DNS has ready servers: %d", len(addresses)).
		With(where + ": " + strings.Join(addresses, ", "))
	if d.fromPod == "" {
		h.Detail += "; no pod was asked (--from-pod)"
	}
	return h
}

// readyEndpoints returns the addresses of ready endpoints, and the pods behind them.
func readyEndpoints(slices []endpointSlice) (addresses []string, pods map[string]bool) {
	pods = map[string]bool{}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if name := e.TargetRef.Name; name != "" && !pods[name] {
				pods[name] = true
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses, pods
}

// resolve runs the first resolver that the pod has. full is the host with its domain.
func (d *dnsCheck) resolve(ctx context.Context, host, full string, upstream *service) path.Hop {
	ns, name, _ := strings.Cut(d.fromPod, "/")
	for _, tool := range [][]string{
		{"getent", "ahosts", host},
		{"nslookup", full}, // many do not search the domains of resolv.conf
		{"python3", "-c", "import socket; print(socket.getaddrinfo('" + host + "', None)[0][4][0])"},
		{"busybox", "nslookup", full},
	} {
		out, err := d.call(ctx, append([]string{"exec", "--namespace", ns, name, "--"}, tool...)...)
		switch {
		case err == nil:
			return d.compareResolved(host, tool, string(out), upstream)
		case err.kind == forbidden:
			return refusedHop("the inside of pod "+d.fromPod, err)
		case err.kind == missing:
			return path.Unknownf("pod %s does not exist: %s", d.fromPod, err.message)
		case isProgramMissing(err.message):
			continue
		case strings.Contains(err.message, "command terminated with exit code"):
			return path.Brokenf(
				"CoreDNS remembers for up to 30 s that a name did not exist; try again, then look at the pod's "+
					"/etc/resolv.conf and dnsPolicy",
				"pod %s cannot resolve %s (%s)", d.fromPod, host, tool[0])
		}
		return path.Unknownf("pod %s cannot be asked: %s", d.fromPod, err.message)
	}
	return path.Unknownf(
		"pod %s has nothing to resolve names with (getent, nslookup and python3 were tried); name another one",
		d.fromPod)
}

// isProgramMissing distinguishes a program that the container lacks from one that failed.
func isProgramMissing(words string) bool {
	for _, text := range []string{"executable file not found", "no such file or directory", "exit code 126",
		"exit code 127"} {
		if strings.Contains(words, text) {
			return true
		}
	}
	return false
}

// compareResolved compares the pod's answer with the addresses of the upstream Service.
func (d *dnsCheck) compareResolved(host string, tool []string, out string, upstream *service) path.Hop {
	evidence := fmt.Sprintf("%s in %s: %s", strings.Join(tool, " "), d.fromPod,
		strings.Join(strings.Fields(out), " "))
	if upstream == nil {
		return path.OKf("pod %s resolves %s", d.fromPod, host).With(evidence)
	}
	want := map[string]bool{upstream.Spec.ClusterIP: true}
	for _, ip := range upstream.Spec.ClusterIPs {
		want[ip] = true
	}
	var got []string
	for _, field := range strings.Fields(out) {
		ip, err := netip.ParseAddr(strings.Trim(field, ",()[]"))
		if err != nil {
			continue
		}
		if want[ip.String()] {
			return path.OKf("pod %s resolves %s to %s", d.fromPod, host, ip).With(evidence)
		}
		got = append(got, ip.String())
	}
	return path.Brokenf("look at the pod's /etc/hosts, /etc/resolv.conf and dnsPolicy",
		"pod %s resolves %s to something else than %s: %s", d.fromPod, host, upstream.Spec.ClusterIP,
		joinNonEmpty(", ", got...)).With(evidence)
}
