// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The programs run as the chart installs them, on a real API server, with exactly the rights of
// their ServiceAccounts; they start, and stop on SIGTERM. There is no account: nothing answers at
// api.url.
func TestInstall_ProgramsStart(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, name := range []string{"team-a", "team-b"} { // which testdata/namespaces.in.yaml allows
		must.Succeed(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	mounts := mountedFiles(t)
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			if out, err := helm(t, c.kubeconfig, nil, "upgrade", "--install", release, chartDir, "--namespace",
				namespace,
				"--create-namespace", "--values", input); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var all appsv1.DeploymentList
			if err := c.List(t.Context(), &all, client.InNamespace(namespace)); err != nil || len(all.Items) == 0 {
				t.Fatalf("%d Deployments, %v", len(all.Items), err)
			}
			for _, d := range all.Items {
				t.Run(d.Name, func(t *testing.T) {
					t.Parallel()
					c.startAndStop(t, d, mounts)
				})
			}
		})
	}
}

// startAndStop runs the Deployment's one container as a process.
func (c *cluster) startAndStop(t *testing.T, d appsv1.Deployment, mounts string) {
	container := d.Spec.Template.Spec.Containers[0]
	path := "/readyz"
	health, err := freeaddr.Find()
	must.Succeed(t, err)
	if container.Name != "manager" {
		path = "/healthz" // they are ready once they have tried for a while to reach the service
	}
	cmd := command(t, container, mounts, "--metrics-addr=127.0.0.1:0", "--health-addr="+health)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.actingAs(t, d.Spec.Template.Spec),
		"POD_IPS=192.0.2.7") // a forwarder that stops looks for them in EndpointSlices
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must.Succeed(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := untilOK(t.Context(), "http://"+health+path, ended); err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("%v %s: %v\n%s", container.Args, path, err, log.String())
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
	if strings.Contains(log.String(), "forbidden") {
		t.Errorf("the chart's rights do not suffice:\n%s", log.String())
	}
}

// actingAs writes a kubeconfig of the pod's ServiceAccount.
func (c *cluster) actingAs(t *testing.T, pod corev1.PodSpec) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	must.Succeed(t, err)
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":" + pod.ServiceAccountName
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace,
			"system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*config, file))
	return file
}

// untilOK asks until the answer is 200, the process ends or two minutes are over.
func untilOK(ctx context.Context, url string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case end := <-ended:
			return fmt.Errorf("it ended: %w", end)
		case <-ctx.Done():
			return err
		}
	}
}

func ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", res.Status)
	}
	return nil
}
