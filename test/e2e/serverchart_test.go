// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	imageServer     = "fairlead.test/fairlead-server:e2e"
	serverChart     = "../../charts/fairlead-server"
	serverChartPort = "31443"
)

// serverRelease is an installed fairlead-server.
type serverRelease struct {
	*Service
	namespace, nodePort string
	extraFlags          []string // further flags of install and upgrade
}

// TestServerChart runs the service in a namespace that admits restricted pods only, on a volume of
// the node; agents of the host reach it through a NodePort, and its data outlives its pods.
func TestServerChart(t *testing.T) {
	c := Shared(t)
	if c.context != "" {
		t.Skip("the volume is a folder of the node")
	}
	r := installServer(t, c)
	r.helmTest(t)
	r.readCredentials(t)
	r.Agent(t, "http", "127.0.0.1:1", "http://web.elsewhere")
	id, pod := r.endpoint(t), r.pod(t)
	t.Run("a pod that is deleted", func(t *testing.T) {
		c.Kubectl(t, "--namespace", r.namespace, "delete", "pod", pod, "--wait=true")
		r.checkReplaced(t, id, pod)
	})
	t.Run("an upgrade", func(t *testing.T) {
		pod := r.pod(t)
		c.Helm(t, r.args("upgrade", "--set", "metrics.enabled=true", "--set", "networkPolicy.enabled=true", "--set",
			"podDisruptionBudget.enabled=true")...)
		r.checkReplaced(t, id, pod)
		r.helmTest(t)
	})
	t.Run("another UID takes the volume", func(t *testing.T) {
		pod := r.pod(t)
		c.Helm(t, r.args("upgrade", "--set", "podSecurityContext.runAsGroup=null",
			"--set", "podSecurityContext.runAsUser=1000680000,podSecurityContext.fsGroup=1000680000")...)
		r.checkReplaced(t, id, pod)
	})
	t.Run("uninstalling leaves the claim", func(t *testing.T) {
		if out := c.Helm(t, "uninstall", "fairlead", "--namespace", r.namespace, "--wait"); !strings.Contains(out,
			"[PersistentVolumeClaim] fairlead-fairlead-server-data") {
			t.Errorf("helm does not say that the claim stays: %s", out)
		}
		c.Gone(t, time.Minute, r.namespace, "fairlead-fairlead-server", &appsv1.Deployment{})
		if err := c.Client.Get(t.Context(),
			client.ObjectKey{Namespace: r.namespace, Name: "fairlead-fairlead-server-data"},
			&corev1.PersistentVolumeClaim{}); err != nil {
			t.Errorf("the claim is gone: %v", err)
		}
		var pods corev1.PodList
		if err := c.Client.List(t.Context(), &pods, client.InNamespace(r.namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "fairlead-server-test"}); err != nil ||
			len(pods.Items) > 0 {
			t.Errorf("%d pods of tests stay, %v", len(pods.Items), err)
		}
	})
}

// installServer makes the volume and installs the chart.
func installServer(t *testing.T, c *Cluster) *serverRelease {
	t.Helper()
	c.Load(t, imageServer+"="+binary(t, "fairlead-server"))
	r := &serverRelease{Service: &Service{c: c, URL: "https://" + NodeIP + ":" + serverChartPort,
		CAFile: filepath.Join(t.TempDir(), "ca.crt")}, namespace: c.Namespace(t, "service"), nodePort: serverChartPort,
		extraFlags: []string{"--set-string", "persistence.storageClass=-"}}
	c.Kubectl(t, "label", "namespace", r.namespace, "pod-security.kubernetes.io/enforce=restricted")
	c.volume(t, r.namespace, "fairlead-fairlead-server-data")
	r.dumpOnFailure(t)
	notes := c.Helm(t, r.args("install")...)
	for _, want := range []string{"/fairlead-server bootstrap", "/fairlead-server ca > ca.crt", "helm test fairlead",
		"Uninstalling the release leaves the claim"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	return r
}

// dumpOnFailure shows what the release's pods say, should the test fail.
func (r *serverRelease) dumpOnFailure(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, args := range [][]string{{"get", "pods,services,pvc,events", "-o", "wide"},
			{"logs", "--prefix", "--tail=40", "-l", "app.kubernetes.io/instance=fairlead"}} {
			out, err := r.c.Exec(context.WithoutCancel(t.Context()),
				append([]string{"kubectl", "--namespace", r.namespace}, args...)...)
			t.Logf("%s%v", out, err)
		}
	})
}

func (r *serverRelease) args(verb string, more ...string) []string {
	repository, tag, _ := strings.Cut(imageServer, ":")
	return append([]string{verb, "fairlead", serverChart, "--namespace", r.namespace, "--wait", "--timeout", "120s",
		"--set", "image.repository=" + repository, "--set", "image.tag=" + tag, "--set", "resources.requests.cpu=10m",
		"--set", "baseURL=" + r.URL, "--set", "service.type=NodePort", "--set", "service.nodePort=" + r.nodePort,
		"--set", "drainTimeout=2s"}, slices.Concat(r.extraFlags, more)...)
}

// volume gives the claim a folder of the node, which belongs to root: the pod may write there by
// its fsGroup.
func (c *Cluster) volume(t *testing.T, namespace, claim string) {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: t.TempDir()}},
			ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: claim},
			NodeAffinity: &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpExists},
					}}}}},
		},
	}
	must.Succeed(t, c.Client.Create(t.Context(), pv))
	t.Cleanup(func() {
		if err := c.Client.Delete(context.WithoutCancel(t.Context()), pv); err != nil {
			t.Error(err)
		}
	})
}

// helmTest runs `helm test`.
func (r *serverRelease) helmTest(t *testing.T) {
	t.Helper()
	if out := r.c.Helm(t, "test", "fairlead", "--namespace", r.namespace, "--timeout", "90s"); !regexp.MustCompile(
		`Phase: +Succeeded`).MatchString(out) {
		t.Errorf("helm test says %s", out)
	}
}

// readCredentials does what the notes say.
func (r *serverRelease) readCredentials(t *testing.T) {
	t.Helper()
	exec := func(command ...string) string {
		return r.c.Kubectl(t, append([]string{"--namespace", r.namespace, "exec", "deployment/fairlead-fairlead-server",
			"--",
			"/fairlead-server"}, command...)...)
	}
	must.Succeed(t, os.WriteFile(r.CAFile, []byte(exec("ca")), 0o600))
	secrets := exec("bootstrap", "--remove")
	r.APIKey = regexp.MustCompile(`flk_[\w-]+`).FindString(secrets)
	r.Authtoken = regexp.MustCompile(`flt_[\w-]+`).FindString(secrets)
	r.ForwarderToken = strings.TrimSpace(exec("authtoken", "create", "--connect", "*"))
	if !strings.Contains(exec("api-key", "create"), "flk_") {
		t.Error("no further API key can be made")
	}
}

// endpoint returns the id of the account's one endpoint, which must be online.
func (r *serverRelease) endpoint(t *testing.T) string {
	t.Helper()
	var list struct {
		Endpoints []struct {
			ID            string          `json:"id"`
			TunnelSession *map[string]any `json:"tunnel_session"`
		} `json:"endpoints"`
	}
	r.API(t, "/endpoints", &list)
	if len(list.Endpoints) != 1 || list.Endpoints[0].TunnelSession == nil {
		t.Fatalf("endpoints: %+v", list)
	}
	return list.Endpoints[0].ID
}

// pod returns the name of the server's pod.
func (r *serverRelease) pod(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(r.c.Kubectl(t, "--namespace", r.namespace, "get", "pods", "-l",
		"app.kubernetes.io/name=fairlead-server", "-o", "jsonpath={.items[*].metadata.name}"))
}

// checkReplaced waits until another pod serves and the agent is back, with the endpoint that it
// had.
func (r *serverRelease) checkReplaced(t *testing.T, id, oldPod string) {
	t.Helper()
	r.c.Kubectl(t, "--namespace", r.namespace, "rollout", "status", "deployment/fairlead-fairlead-server",
		"--timeout=90s")
	if pod := r.pod(t); pod == oldPod || pod == "" {
		t.Fatalf("the pod is %q and was %q", pod, oldPod)
	}
	secret := fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", r.APIKey)
	r.c.Eventually(t, time.Minute, "the agent back", func(ctx context.Context) error {
		out, err := r.c.ExecInput(ctx, strings.NewReader(secret), "curl", "-K", "-", "-sS", "-m", "5", "--cacert",
			r.CAFile,
			"-H", "Service-Version: 2", r.URL+"/endpoints")
		if err == nil && !strings.Contains(out, `"tunnel_session":{`) {
			err = fmt.Errorf("endpoints: %s", out)
		}
		return err
	})
	if now := r.endpoint(t); now != id {
		t.Errorf("the endpoint was %s and is %s", id, now)
	}
}
