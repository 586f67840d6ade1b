// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// network makes the node's only link: a veth pair with both ends inside. There is no default route, so no packet can
// leave; Services are routed to the link so that programs of the node (the API server calling a webhook) reach ClusterIPs.
func network() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "eth0-peer"}
	veth.Name = "eth0"
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("making a veth pair (the kernel needs CONFIG_VETH): %w", err)
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("finding eth0: %w", err)
	}
	peer, err := netlink.LinkByName("eth0-peer")
	if err != nil {
		return fmt.Errorf("finding eth0-peer: %w", err)
	}
	addr, err := netlink.ParseAddr(nodePrefix)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(eth0, addr); err != nil {
		return fmt.Errorf("giving eth0 its address: %w", err)
	}
	for _, l := range []netlink.Link{lo, eth0, peer} {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("setting %s up: %w", l.Attrs().Name, err)
		}
	}
	_, services, err := net.ParseCIDR(serviceCIDR)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: services, Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("routing Services to eth0: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
