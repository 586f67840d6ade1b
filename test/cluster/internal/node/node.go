// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the inside of a cluster: PID 1 of the node's namespaces, which mounts, makes the
// network, starts and watches the programs, loads the base images and installs cluster DNS.
// internal/lifecycle starts it with a cluster's folder; it hands its progress back through the file
// `events` there. Killing it ends all that runs inside, and with the last process go the mounts and
// the network.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/cgroup"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/pki"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

// InitCommand is the hidden sub-command that the node runs as: InitCommand DIR.
const InitCommand = "node-init"

// NetworkPoliciesCommand is the hidden sub-command that enforces NetworkPolicies in the node. Its
// log and the rules in force have this name.
const NetworkPoliciesCommand = "network-policies"

// Namespaces are those that the node is started in; its cgroup namespace it makes itself.
const Namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// The addresses of every node. Each has a network of its own, without a way out.
const (
	nodeName  = "node"
	nodeIP    = "10.99.0.2"
	serviceIP = "10.96.0.1"
	dnsIP     = "10.96.0.10"
)

// APIServer is the address of the API server in the node's network, as kubeconfigs name it.
const APIServer = nodeIP + ":6443"

// family are the addresses of one IP family.
type family struct {
	Node, Link, Pods, Services string
	Everywhere                 string // the destination of pods' default route
	forwarding                 string // file under /proc/sys
}

var (
	ipv4 = family{Node: nodeIP, Link: nodeIP + "/24", Pods: "10.244.0.0/24", Services: "10.96.0.0/16",
		Everywhere: "0.0.0.0/0", forwarding: "net/ipv4/ip_forward"}
	ipv6 = family{Node: "fd99::2", Link: "fd99::2/64", Pods: "fd44::/64", Services: "fd96::/112", Everywhere: "::/0",
		forwarding: "net/ipv6/conf/all/forwarding"}
)

// families are those of the cluster, IPv4 first.
func families(o state.Options) []family {
	if o.DualStack {
		return []family{ipv4, ipv6}
	}
	return []family{ipv4}
}

// joined joins one address of each family, as Kubernetes's flags want them.
func joined(families []family, address func(family) string) string {
	var all []string
	for _, f := range families {
		all = append(all, address(f))
	}
	return strings.Join(all, ",")
}

// bootTimeout bounds the way from PID 1 to a Ready CoreDNS.
const bootTimeout = 3 * time.Minute

// released marks the second run of the program, after AwaitRelease.
const released = "FAIRLEAD_NODE_RELEASED=1"

// Main is the node's whole life. It returns only with an error.
func Main(dir string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("%s is how `cluster up` starts a node; it is of no use by itself", InitCommand)
	}
	if os.Getenv("FAIRLEAD_NODE_RELEASED") == "" {
		return awaitRelease()
	}
	if err := os.Unsetenv("FAIRLEAD_NODE_RELEASED"); err != nil {
		return err
	}
	c, err := state.Load(dir)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	events, err := os.OpenFile(c.Path(eventsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	n := &node{c: c, events: events, start: time.Now()}
	if err := n.run(ctx); err != nil {
		n.say(eventFailed, err.Error())
		return err
	}
	return errors.New("stopped by a signal")
}

// awaitRelease waits until `up` has recorded this process and put it into its control groups. If
// `up` dies before, the pipe ends and so does the node. Then it takes a cgroup namespace, which
// only its own thread gets, and runs the program again from there.
func awaitRelease() error {
	pipe := os.NewFile(3, "release")
	if n, err := pipe.Read(make([]byte, 1)); n == 0 {
		return fmt.Errorf("waiting for `cluster up`: %w", err)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	if err := pipe.Close(); err != nil {
		return err
	}
	return fmt.Errorf("starting again: %w", syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), released)))
}

type node struct {
	c      *state.Cluster
	events io.Writer
	start  time.Time
	procs  *supervisor
}

func (n *node) run(ctx context.Context) error {
	hs, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	if err := n.mounts(hs); err != nil {
		return fmt.Errorf("preparing the node's mounts: %w", err)
	}
	if err := network(families(n.c.Options)); err != nil {
		return fmt.Errorf("preparing the node's network: %w", err)
	}
	if err := pki.Write(pki.Config{Dir: n.c.Path("pki"), Cluster: n.c.Name, Node: nodeName, NodeIP: nodeIP,
		ServiceIP: serviceIP}); err != nil {
		return err
	}
	if err := n.writeConfig(); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	n.procs = newSupervisor(n.c)
	bootCtx, cancel := context.WithTimeout(ctx, bootTimeout)
	err = n.boot(bootCtx)
	cancel()
	if err != nil {
		return err
	}
	n.say(eventReady, "the cluster is ready")
	<-ctx.Done()
	return nil
}

// The kinds of lines in the file of events: "KIND SECONDS TEXT", one line each.
const (
	eventsFile  = "events"
	eventStep   = "step"
	eventReady  = "ready"
	eventFailed = "failed"
)

func (n *node) say(kind, text string) {
	seconds := time.Since(n.start).Seconds()
	text = strings.ReplaceAll(text, "\n", "\t")
	_, _ = fmt.Fprintf(n.events, "%s %.1f %s\n", kind, seconds, text) // fails when the reader has closed the pipe
}

// Progress is how far a start has come.
type Progress struct {
	Steps  []string // what was reached, each with the seconds that it took
	Ready  bool
	Failed string // why the start was given up
}

// ReadProgress reads what the node of a cluster has reported so far.
func ReadProgress(c *state.Cluster) Progress {
	var p Progress
	b, err := os.ReadFile(c.Path(eventsFile))
	if err != nil {
		return p // nothing yet
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		seconds, text, _ := strings.Cut(rest, " ")
		text = strings.ReplaceAll(text, "\t", "\n")
		switch kind {
		case eventStep:
			p.Steps = append(p.Steps, fmt.Sprintf("%5s s  %s", seconds, text))
		case eventReady:
			p.Steps = append(p.Steps, fmt.Sprintf("%5s s  %s", seconds, text))
			p.Ready = true
		case eventFailed:
			p.Failed = text
		}
	}
	return p
}
