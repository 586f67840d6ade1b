// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubenode is etcd, the Kubernetes control plane, kubelet and kube-proxy in one binary: it
// acts as the program it is called as (argv[0], through a hard link) or as its first argument says.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJob time zones

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          kubeapiserver.NewAPIServerCommand,
	"kube-controller-manager": kubecontrollermanager.NewControllerManagerCommand,
	"kube-proxy":              kubeproxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return kubescheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubeletCommand(kubelet.NewKubeletCommand) },
}

func main() {
	name := filepath.Base(os.Args[0])
	if commands[name] == nil && name != "etcd" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	newCommand := commands[name]
	if newCommand == nil {
		fmt.Fprintf(os.Stderr, "kubenode: no program %q\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}

// kubeletCommand calls kubelet.NewKubeletCommand, which takes a context since Kubernetes 1.34.
func kubeletCommand(newCommand any) *cobra.Command {
	if old, ok := newCommand.(func() *cobra.Command); ok {
		return old()
	}
	return newCommand.(func(context.Context) *cobra.Command)(context.Background())
}
