// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	gatherDelay = 5 * time.Millisecond // within which changes become one ruleset
	retryDelay  = time.Second          // after a ruleset that could not be made or loaded
	nftTimeout  = 10 * time.Second
)

// enforcer knows the cluster through watches. Only run uses it.
type enforcer struct {
	namespaces corelisters.NamespaceLister
	pods       corelisters.PodLister
	policies   networkinglisters.NetworkPolicyLister
	changed    chan struct{} // holds at most one
	file       string
	loaded     string // the ruleset in the kernel
}

// Run enforces the NetworkPolicies of the cluster that a kubeconfig names in the network namespace
// of this process until ctx ends. The rules stay then. It writes each ruleset that it has loaded to
// a file, which so exists once the rules of the first complete lists are in force.
func Run(ctx context.Context, kubeconfig, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	core, networking := factory.Core().V1(), factory.Networking().V1()
	e := &enforcer{
		namespaces: core.Namespaces().Lister(), pods: core.Pods().Lister(),
		policies: networking.NetworkPolicies().Lister(), changed: make(chan struct{}, 1), file: file,
	}
	for _, informer := range []cache.SharedIndexInformer{core.Namespaces().Informer(), core.Pods().Informer(),
		networking.NetworkPolicies().Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { e.change() },
			UpdateFunc: func(any, any) { e.change() },
			DeleteFunc: func(any) { e.change() },
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	return e.run(ctx)
}

func (e *enforcer) change() {
	select {
	case e.changed <- struct{}{}:
	default: // a ruleset is due already
	}
}

func (e *enforcer) run(ctx context.Context) error {
	delay := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		err := e.sync(ctx)
		if err == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-e.changed:
				delay = gatherDelay
			}
			continue
		}
		fmt.Printf("%s the rules of before stay: %v\n", time.Now().Format(time.RFC3339), err)
		delay = retryDelay
	}
}

// sync loads the ruleset of this moment, if it differs from the one before.
func (e *enforcer) sync(ctx context.Context) error {
	var s Snapshot
	var err, err2, err3 error
	s.Namespaces, err = e.namespaces.List(labels.Everything())
	s.Pods, err2 = e.pods.List(labels.Everything())
	s.Policies, err3 = e.policies.List(labels.Everything())
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	ruleset, err := Compile(s)
	if err != nil || ruleset == e.loaded {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	nft := exec.CommandContext(ctx, "nft", "--file", "-")
	nft.Stdin = strings.NewReader(ruleset)
	if out, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	e.loaded = ruleset
	if err := os.WriteFile(e.file+".new", []byte(ruleset), 0o644); err != nil {
		return err
	}
	return os.Rename(e.file+".new", e.file)
}
