// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	imageOperator = "fairlead.test/fairlead-operator:e2e"
	chartPath     = "../../charts/fairlead-operator"
	firstPort     = 18443
)

// Service is a running fairlead-server with the first credentials of its account, and an authtoken
// of forwarders.
type Service struct {
	c                 *Cluster
	dir, addr, URL    string
	metricsURL        string
	flags             []string
	programs          string // folder of the programs that it starts next; empty for those of `make build`
	APIKey, Authtoken string
	ForwarderToken    string
	CAFile            string
	Process           *Process
}

// Release is an installed fairlead-operator.
type Release struct {
	c         *Cluster
	Namespace string
	Name      string
	Chart     string // path of a folder or an archive
	Service   *Service
}

// product holds what the tests of a process share.
var product struct {
	ports   atomic.Int32
	install sync.Mutex // two first releases at once would both bring the CRDs
}

// program returns the path of the server's or the agents' program.
func (s *Service) program(t testing.TB, name string) string {
	t.Helper()
	if s.programs == "" {
		return binary(t, name)
	}
	return filepath.Join(s.programs, name)
}

// binary returns the path of one of the programs that `make build` made.
func binary(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin", name))
	must.Succeed(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return path
}

// StartService runs a fairlead-server of its own in the node's network, with an empty data
// directory.
func (c *Cluster) StartService(t testing.TB, flags ...string) *Service {
	t.Helper()
	return c.StartServiceAt(t, NodeIP, flags...)
}

// StartServiceAt is StartService at another address of the node.
func (c *Cluster) StartServiceAt(t testing.TB, host string, flags ...string) *Service {
	t.Helper()
	return c.startServiceOf(t, "", host, flags...)
}

// startServiceOf is StartServiceAt with the programs of a folder.
func (c *Cluster) startServiceOf(t testing.TB, programs, host string, flags ...string) *Service {
	t.Helper()
	n := int(product.ports.Add(1))
	dir := t.TempDir()
	s := &Service{c: c, dir: dir, programs: programs, flags: flags,
		addr: net.JoinHostPort(host, strconv.Itoa(firstPort+n)), CAFile: filepath.Join(dir, "ca.crt")}
	s.URL, s.metricsURL = "https://"+s.addr, fmt.Sprintf("http://127.0.0.1:%d", firstPort+1000+n)
	s.Start(t)
	ca, err := c.Exec(t.Context(), s.program(t, "fairlead-server"), "ca", "--data-dir", filepath.Join(dir, "data"))
	if err == nil {
		err = os.WriteFile(s.CAFile, []byte(ca), 0o600)
	}
	must.Succeed(t, err)
	secrets, err := os.ReadFile(filepath.Join(dir, "bootstrap"))
	must.Succeed(t, err)
	s.APIKey = regexp.MustCompile(`flk_[\w-]+`).FindString(string(secrets))
	s.Authtoken = regexp.MustCompile(`flt_[\w-]+`).FindString(string(secrets))
	token, err := c.Exec(t.Context(), s.program(t, "fairlead-server"), "authtoken", "create", "--connect", "*",
		"--data-dir", filepath.Join(dir, "data"))
	must.Succeed(t, err)
	s.ForwarderToken = strings.TrimSpace(token)
	return s
}

// Start starts the service (again, after a Stop or Kill of its Process) and waits until it is
// ready.
func (s *Service) Start(t testing.TB) {
	t.Helper()
	args := append([]string{s.program(t, "fairlead-server"), "--addr", s.addr, "--base-url", s.URL, "--data-dir",
		filepath.Join(s.dir, "data"),
		"--bootstrap-file", filepath.Join(s.dir, "bootstrap"), "--metrics-addr",
		strings.TrimPrefix(s.metricsURL, "http://")},
		s.flags...)
	s.Process = s.c.Start(t, "fairlead-server", args...)
	s.c.Eventually(t, 20*time.Second, "fairlead-server ready", func(ctx context.Context) error {
		status, body, err := s.c.get(ctx, s.metricsURL+"/readyz")
		if err == nil && status != 200 {
			err = fmt.Errorf("readyz says %d %s", status, body)
		}
		return err
	})
}

// Kill ends the service as a crash would, and waits until its port is free: the node's process ends
// after the command that runs it.
func (s *Service) Kill(t testing.TB) {
	t.Helper()
	s.Process.Kill()
	s.c.Eventually(t, 5*time.Second, "the service's port free", func(ctx context.Context) error {
		conn, err := s.c.DialContext(ctx, "tcp", s.addr)
		if err == nil {
			return fmt.Errorf("still answering: %w", conn.Close())
		}
		return nil
	})
}

// Install installs the chart in a namespace of its own with the README's flags and further ones,
// and removes it after the test.
func (s *Service) Install(t testing.TB, more ...string) *Release {
	t.Helper()
	return s.InstallChart(t, chartPath, more...)
}

// InstallShared installs the chart in the suite's cluster beside a service of its own, and makes a
// namespace for target Services.
func InstallShared(t testing.TB, prefix string, more ...string) (r *Release, namespace string) {
	t.Helper()
	c := Shared(t)
	return c.StartService(t).Install(t, more...), c.Namespace(t, prefix)
}

// InstallChart is Install with another chart than that of the checkout.
func (s *Service) InstallChart(t testing.TB, chart string, more ...string) *Release {
	t.Helper()
	return s.installAs(t, &Release{Namespace: s.c.Namespace(t, "fairlead"), Name: "fairlead-operator", Chart: chart},
		more...)
}

// InstallIn is Install into a namespace that exists, under a name.
func (s *Service) InstallIn(t testing.TB, namespace, name string, more ...string) *Release {
	t.Helper()
	return s.installAs(t, &Release{Namespace: namespace, Name: name, Chart: chartPath}, more...)
}

func (s *Service) installAs(t testing.TB, r *Release, more ...string) *Release {
	t.Helper()
	c := s.c
	r.c, r.Service = c, s
	c.loaded.Do(func() { c.Load(t, imageOperator+"="+binary(t, "fairlead-operator")) })
	product.install.Lock()
	defer product.install.Unlock()
	c.Helm(t, r.args("install", more...)...)
	t.Cleanup(func() {
		if t.Failed() {
			r.dump(t)
		}
	})
	return r
}

// Upgrade changes values of the release.
func (r *Release) Upgrade(t testing.TB, more ...string) { r.c.Helm(t, r.args("upgrade", more...)...) }

func (r *Release) args(verb string, more ...string) []string {
	repository, tag, _ := strings.Cut(imageOperator, ":")
	return append([]string{verb, r.Name, r.Chart, "--namespace", r.Namespace, "--wait", "--timeout", "120s",
		"--set", "description=end-to-end", "--set", "binding.enabled=true",
		"--set", "credentials.apiKey=" + r.Service.APIKey, "--set", "credentials.authtoken=" + r.Service.ForwarderToken,
		"--set", "api.url=" + r.Service.URL, "--set-file", "api.caBundle=" + r.Service.CAFile,
		"--set", "image.repository=" + repository, "--set", "image.tag=" + tag}, more...)
}

// dump shows what the pods of the release say; for a test that failed.
func (r *Release) dump(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"kubectl", "-n", r.Namespace, "get", "pods,services,boundendpoints,kubernetesoperators", "-o", "wide"},
		{"kubectl", "-n", r.Namespace, "logs", "--prefix", "--tail=40", "-l", "app.kubernetes.io/instance=" + r.Name},
	} {
		out, err := r.c.Exec(ctx, args...)
		t.Logf("%s\n%s%v", strings.Join(args, " "), out, err)
	}
}

// Agent starts `fairlead KIND TARGET --url URL …` as a user would and waits until it says online.
func (s *Service) Agent(t testing.TB, kind, target, url string, more ...string) *Process {
	t.Helper()
	p := s.AgentOnly(t, kind, target, url, more...)
	p.WaitOutput(t, 15*time.Second, `(?i)\bonline\b`)
	return p
}

// AgentOnly starts an agent and does not wait for anything.
func (s *Service) AgentOnly(t testing.TB, kind, target, url string, more ...string) *Process {
	t.Helper()
	home := t.TempDir()
	// HOME by env(1): the program that enters the node has its own there.
	args := append([]string{"env", "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_STATE_HOME=" + home,
		s.program(t, "fairlead"), kind, target, "--url", url, "--binding", "kubernetes", "--server", s.URL, "--ca-file",
		s.CAFile}, more...)
	return s.c.StartEnv(t, "fairlead", []string{"FAIRLEAD_AUTHTOKEN=" + s.Authtoken}, args...)
}

// API asks the account API with the admin key and decodes the answer.
func (s *Service) API(t testing.TB, path string, into any) {
	t.Helper()
	secret := strings.NewReader(fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", s.APIKey))
	out, err := s.c.ExecInput(t.Context(), secret, "curl", "-K", "-", "-sS", "-m", "10", "--cacert", s.CAFile, "-H",
		"Service-Version: 2", s.URL+path)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	if err != nil {
		t.Fatalf("asking the API for %s: %v: %s", path, err, out)
	}
}

// BoundEndpoint waits until the hostname's BoundEndpoint has the condition with this status and
// reason, and returns it.
func (r *Release) BoundEndpoint(t testing.TB, hostname, condition, status, reason string) *v1alpha1.BoundEndpoint {
	t.Helper()
	bep := &v1alpha1.BoundEndpoint{}
	r.c.Eventually(t, 30*time.Second, fmt.Sprintf("%s %s=%s (%s)", hostname, condition, status, reason),
		func(ctx context.Context) error {
			if err := r.c.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: hostname}, bep); err != nil {
				return err
			}
			cond := meta.FindStatusCondition(bep.Status.Conditions, condition)
			if cond == nil || string(cond.Status) != status || cond.Reason != reason {
				return fmt.Errorf("conditions are %+v", bep.Status.Conditions)
			}
			return nil
		})
	return bep
}

// Services returns the upstream and the target Service of a BoundEndpoint, which must exist. With
// projection by EndpointSlices both are the target Service.
func (r *Release) Services(t testing.TB, bep *v1alpha1.BoundEndpoint) (upstream, target *corev1.Service) {
	t.Helper()
	upstream, target = &corev1.Service{}, &corev1.Service{}
	targetKey := client.ObjectKey{Namespace: bep.Spec.Namespace, Name: bep.Spec.Service}
	upstreamKey := client.ObjectKey{Namespace: r.Namespace, Name: bep.Spec.ProjectionID}
	if bep.Status.Projection == v1alpha1.ProjectionEndpointSlice {
		upstreamKey = targetKey
	}
	for svc, key := range map[*corev1.Service]client.ObjectKey{upstream: upstreamKey, target: targetKey} {
		must.Succeed(t, r.c.Client.Get(t.Context(), key, svc))
	}
	return upstream, target
}

// Gone waits until the object does not exist.
func (c *Cluster) Gone(t testing.TB, timeout time.Duration, namespace, name string, obj client.Object) {
	t.Helper()
	c.Eventually(t, timeout, fmt.Sprintf("%T %s/%s gone", obj, namespace, name), func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("still there")
		}
		return err
	})
}

// CurlPod starts a pod with curl.
func (c *Cluster) CurlPod(t testing.TB, namespace string) *corev1.Pod {
	t.Helper()
	return c.StartPod(t, Pod{Namespace: namespace, Image: ImageCurl, Command: []string{"sleep", "infinity"}})
}

// NettoolPod starts a pod in which nettool's commands can be run.
func (c *Cluster) NettoolPod(t testing.TB, namespace string) *corev1.Pod {
	t.Helper()
	return c.StartPod(t, Pod{Namespace: namespace, Image: ImageNettool, Args: []string{"sleep"}})
}

// StartUpstream starts one of nettool's servers in the node's network and waits until it listens.
func (c *Cluster) StartUpstream(t testing.TB, name, command, addr string) *Process {
	t.Helper()
	p := c.Start(t, name, "nettool", command, addr)
	p.WaitOutput(t, 10*time.Second, "serving")
	return p
}

// startUpstreams starts an upstream for http and one that echoes lines, and returns their ports.
func (c *Cluster) startUpstreams(t testing.TB) (web, echo string) {
	t.Helper()
	web, echo = freePort(), freePort()
	c.StartUpstream(t, "web", "serve", "127.0.0.1:"+web)
	c.StartUpstream(t, "echo", "echo", "127.0.0.1:"+echo)
	return web, echo
}

// Curl asks from a pod and returns the HTTP status, the body and curl's error.
func (c *Cluster) Curl(
	ctx context.Context, pod *corev1.Pod, url string, more ...string,
) (status int, body string, err error) {
	args := append([]string{"curl", "-sS", "-m", "10", "-w", "\n%{http_code}"}, more...)
	out, err := c.PodExec(ctx, pod, append(args, url)...)
	body, code := cutLast(out, "\n")
	if _, scanErr := fmt.Sscan(code, &status); scanErr != nil && err == nil {
		err = fmt.Errorf("reading curl's output %q: %w", out, scanErr)
	}
	return status, body, err
}

// cutLast cuts around the last separator. Without one, all of s comes after it.
func cutLast(s, sep string) (before, after string) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):]
	}
	return "", s
}

// CurlUntil asks from a pod until the answer has this status, and returns the body.
func (c *Cluster) CurlUntil(t testing.TB, timeout time.Duration, pod *corev1.Pod, url string, want int) string {
	t.Helper()
	var body string
	c.Eventually(t, timeout, fmt.Sprintf("%s answers %d", url, want), func(ctx context.Context) error {
		status, b, err := c.Curl(ctx, pod, url)
		if err == nil && status != want {
			err = fmt.Errorf("status %d: %s", status, b)
		}
		body = b
		return err
	})
	return body
}
