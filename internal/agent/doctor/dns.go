// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// checkDNS checks the cluster's DNS servers and, with FromPod, resolves the hostname in that pod.
func (w *diagnosis) checkDNS(ctx context.Context) Hop {
	h := w.dnsServers(ctx)
	if w.o.FromPod == "" || h.Status == Broken {
		return h
	}
	host, domain := w.o.URL.Host, "cluster.local"
	if _, _, d := parseExternalName(w.target.Spec.ExternalName); d != "" {
		domain = d
	}
	fromPod := w.resolveInPod(ctx, host, host+".svc."+domain+".")
	fromPod.Evidence = append(append(fromPod.Evidence, h.Detail), h.Evidence...)
	return fromPod
}

// dnsServers checks the EndpointSlices of the cluster's usual DNS Service.
func (w *diagnosis) dnsServers(ctx context.Context) Hop {
	const where = "EndpointSlices labelled k8s-app=kube-dns in kube-system"
	var slices list[endpointSlice]
	_, err := w.k.get(ctx, &slices, "endpointslices.discovery.k8s.io", "--namespace", "kube-system", "-l",
		"k8s-app=kube-dns")
	if err != nil {
		return refusedHop("the cluster's DNS ("+where+")", err)
	}
	if len(slices.Items) == 0 {
		return unknown("there are no %s, so this cluster's DNS is elsewhere; --from-pod NAMESPACE/POD asks from a pod",
			where)
	}
	addresses, _ := readyEndpoints(slices.Items)
	if len(addresses) == 0 {
		return broken("see why its pods are not ready:\n"+
			w.command("--namespace kube-system get pods -l k8s-app=kube-dns"),
			"the cluster's DNS has no ready server (%s)", where)
	}
	h := ok("the cluster's DNS has ready servers: %d", len(addresses)).
		with(where + ": " + strings.Join(addresses, ", "))
	if w.o.FromPod == "" {
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

// resolveInPod runs the first resolver that the pod has. full is the host with its domain.
func (w *diagnosis) resolveInPod(ctx context.Context, host, full string) Hop {
	ns, name, _ := strings.Cut(w.o.FromPod, "/")
	for _, tool := range [][]string{
		{"getent", "ahosts", host},
		{"nslookup", full}, // many do not search the domains of resolv.conf
		{"python3", "-c", "import socket; print(socket.getaddrinfo('" + host + "', None)[0][4][0])"},
		{"busybox", "nslookup", full},
	} {
		out, err := w.k.call(ctx, append([]string{"exec", "--namespace", ns, name, "--"}, tool...)...)
		switch {
		case err == nil:
			return w.compareResolved(host, tool, string(out))
		case err.kind == forbidden:
			return refusedHop("the inside of pod "+w.o.FromPod, err)
		case err.kind == missing:
			return unknown("pod %s does not exist: %s", w.o.FromPod, err.message)
		case isProgramMissing(err.message):
			continue
		case strings.Contains(err.message, "command terminated with exit code"):
			return broken(
				"CoreDNS remembers for up to 30 s that a name did not exist; try again, then look at the pod's "+
					"/etc/resolv.conf and dnsPolicy",
				"pod %s cannot resolve %s (%s)", w.o.FromPod, host, tool[0])
		}
		return unknown("pod %s cannot be asked: %s", w.o.FromPod, err.message)
	}
	return unknown(
		"pod %s has nothing to resolve names with (getent, nslookup and python3 were tried); name another one",
		w.o.FromPod)
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
func (w *diagnosis) compareResolved(host string, tool []string, out string) Hop {
	evidence := fmt.Sprintf("%s in %s: %s", strings.Join(tool, " "), w.o.FromPod,
		strings.Join(strings.Fields(out), " "))
	if w.upstream == nil {
		return ok("pod %s resolves %s", w.o.FromPod, host).with(evidence)
	}
	want := map[string]bool{w.upstream.Spec.ClusterIP: true}
	for _, ip := range w.upstream.Spec.ClusterIPs {
		want[ip] = true
	}
	var got []string
	for _, field := range strings.Fields(out) {
		ip, err := netip.ParseAddr(strings.Trim(field, ",()[]"))
		if err != nil {
			continue
		}
		if want[ip.String()] {
			return ok("pod %s resolves %s to %s", w.o.FromPod, host, ip).with(evidence)
		}
		got = append(got, ip.String())
	}
	return broken("look at the pod's /etc/hosts, /etc/resolv.conf and dnsPolicy",
		"pod %s resolves %s to something else than %s: %s", w.o.FromPod, host, w.upstream.Spec.ClusterIP,
		joinNonEmpty(", ", got...)).with(evidence)
}
