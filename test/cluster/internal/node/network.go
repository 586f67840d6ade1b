// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// network makes the node's only link: a veth pair with both ends inside. There is no default route,
// so no packet can leave; Services are routed to the link so that programs of the node (the API
// server calling a webhook) reach ClusterIPs.
func network(families []family) error {
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
	for _, l := range []netlink.Link{lo, eth0, peer} {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("setting %s up: %w", l.Attrs().Name, err)
		}
	}
	for _, f := range families {
		if err := f.configure(eth0); err != nil {
			return err
		}
	}
	return nil
}

// configure gives the link its address, routes Services to it, and lets the kernel forward.
func (f family) configure(link netlink.Link) error {
	addr, err := netlink.ParseAddr(f.Link)
	if err != nil {
		return err
	}
	addr.Flags = unix.IFA_F_NODAD // the address is unique, and detecting duplicates takes a second
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("giving eth0 the address %s: %w", f.Link, err)
	}
	_, services, err := net.ParseCIDR(f.Services)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: services, Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("routing Services %s to eth0: %w", f.Services, err)
	}
	return os.WriteFile(filepath.Join("/proc/sys", f.forwarding), []byte("1"), 0)
}
