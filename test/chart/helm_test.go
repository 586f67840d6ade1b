// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-dev/fairlead/test/support/inputs"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the golden files")

// recorded is done once the cache of results knows what helm and the programs are made from.
var recorded sync.Once

const (
	chartDir    = "../../charts/fairlead-operator"
	kubeVersion = "1.37.2"
	release     = "fairlead-operator"
	namespace   = "fairlead"
)

// helmPath finds the helm program. A test that needs it fails without it: a chart that was not
// rendered is not tested.
func helmPath(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("FAIRLEAD_HELM"); path != "" {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("FAIRLEAD_HELM: %v: build helm with `make cluster-build`, or name another", err)
		}
		return path
	}
	if path, err := exec.LookPath("helm"); err == nil {
		return path
	}
	cache := os.Getenv("FAIRLEAD_CACHE")
	if cache == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(dir, "fairlead")
		}
	}
	path := filepath.Join(cache, "cluster", "current", "helm")
	if _, err := os.Stat(path); err != nil {
		t.Fatal("no helm: build it with `make cluster-build`, put one into PATH, or name one in FAIRLEAD_HELM")
	}
	return path
}

// helm runs helm, apart from the user's configuration, and returns its output, or its error output
// if it failed. Values are passed on exactly.
func helm(t *testing.T, kubeconfig string, v values, args ...string) (string, error) {
	t.Helper()
	return helmOf(t, helmPath(t), kubeconfig, v, args...)
}

// helmOf is helm with the given program.
func helmOf(t *testing.T, program, kubeconfig string, v values, args ...string) (string, error) {
	t.Helper()
	recorded.Do(func() {
		inputs.Record(t, "testdata", "../e2e/testdata", "../../charts", "../../cmd", "../../internal", "../../api",
			"../../go.mod", "../../go.sum")
	})
	input := asYAML(t, v)
	if v != nil {
		args = append(args, "--values", "-")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+kubeconfig)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", args[0], err, errs.String())
	}
	return out.String(), nil
}

// asYAML returns v as JSON, with characters escaped that YAML forbids or reads as line ends.
func asYAML(t *testing.T, v values) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must.Succeed(t, err)
	var out bytes.Buffer
	for _, r := range string(b) {
		if r >= 0x7f && r < 0xa0 || r == 0xfeff {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// values are nested maps. set returns a copy with one value changed; the path's parts are separated
// by dots.
type values map[string]any

func (v values) set(path string, value any) values {
	var copied values
	b, _ := json.Marshal(v)
	_ = json.Unmarshal(b, &copied)
	at := map[string]any(copied)
	parts := strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		if _, ok := at[part].(map[string]any); !ok {
			at[part] = map[string]any{}
		}
		at = at[part].(map[string]any)
	}
	at[parts[len(parts)-1]] = value
	return copied
}

// validValues is the least that an installation needs.
func validValues() values {
	return values{
		"api":         map[string]any{"url": "https://fairlead.example.com"},
		"credentials": map[string]any{"apiKey": "flk_secret-of-the-key", "authtoken": "flt_secret-of-the-token"},
	}
}

// federatedValues is the least that an installation without secrets needs.
func federatedValues() values {
	return values{
		"api":         map[string]any{"url": "https://fairlead.example.com"},
		"credentials": map[string]any{"serviceAccount": map[string]any{"enabled": true, "accountID": "ac-1"}},
	}
}

// exportingValues is the least that an installation with exporters needs.
func exportingValues() values {
	return validValues().set("export.enabled", true).set("credentials.exporterApiKey", "flk_secret-of-the-exporter")
}

// clustersetValues is the least that an installation with the Multi-Cluster Services API needs.
func clustersetValues() values {
	return exportingValues().set("export.services", true).set("clusterset.enabled", true)
}

// template renders the chart.
func template(t *testing.T, v values, args ...string) (string, error) {
	t.Helper()
	return helm(t, os.DevNull, v,
		append([]string{"template", release, chartDir, "--namespace", namespace, "--kube-version", kubeVersion},
			args...)...)
}

// rendered is the chart's output as objects.
type rendered []unstructured.Unstructured

func render(t *testing.T, v values) rendered {
	t.Helper()
	text, err := template(t, v)
	must.Succeed(t, err)
	return parse(t, text)
}

func parse(t *testing.T, text string) rendered {
	t.Helper()
	var all rendered
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("parsing what the chart rendered: %v", err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// get converts the object of that kind and name.
func get[T any](t *testing.T, all rendered, kind, name string) T {
	t.Helper()
	var result T
	for _, o := range all {
		if o.GetKind() != kind || o.GetName() != name {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &result,
			true); err != nil {
			t.Fatalf("%s %s: %v", kind, name, err)
		}
		return result
	}
	t.Fatalf("the chart rendered no %s %s", kind, name)
	return result
}

func manager(t *testing.T, all rendered) appsv1.Deployment {
	t.Helper()
	return get[appsv1.Deployment](t, all, "Deployment", release+"-manager")
}

func forwarder(t *testing.T, all rendered) appsv1.Deployment {
	t.Helper()
	return get[appsv1.Deployment](t, all, "Deployment", release+"-forwarder")
}

func exporter(t *testing.T, all rendered) appsv1.Deployment {
	t.Helper()
	return get[appsv1.Deployment](t, all, "Deployment", release+"-exporter")
}
