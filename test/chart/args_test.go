// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// expand replaces $(NAME) and $$ as the kubelet does in arguments and in the values of variables: an unknown $(NAME) stays.
func expand(text string, known map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		end := strings.IndexByte(text[i:], ')')
		switch {
		case text[i] == '$':
			b.WriteByte('$')
		case text[i] == '(' && end > 0:
			name := text[i+1 : i+end]
			if value, ok := known[name]; ok {
				b.WriteString(value)
			} else {
				b.WriteString("$(" + name + ")")
			}
			i += end
		default:
			b.WriteString("$" + text[i:i+1])
		}
	}
	return b.String()
}

// environment returns the container's variables as the process will see them.
func environment(c corev1.Container) map[string]string {
	known := map[string]string{}
	for _, v := range c.Env {
		switch {
		case v.ValueFrom == nil:
			known[v.Name] = expand(v.Value, known)
		case v.ValueFrom.FieldRef != nil:
			known[v.Name] = map[string]string{"metadata.namespace": namespace, "metadata.name": "pod-1", "status.podIP": "10.0.0.7"}[v.ValueFrom.FieldRef.FieldPath]
		}
	}
	return known
}

func arguments(c corev1.Container) []string {
	known := environment(c)
	args := make([]string, len(c.Args))
	for i, a := range c.Args {
		args[i] = expand(a, known)
	}
	return args
}

func TestTextsReachTheManagerExactly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`ep.hostname.endsWith('.prod')`,
		`ep.name == "a,b" && ep.metadata.contains('{"x": [1, 2]}')`,
		"ep.name == 'x' && // a comment\n\tep.port == 80\n",
		`ep.description == "Zürich 日本 🚢"`,
		`ep.name.matches("^a\\d+\\.$")`,
		"$(POD_NAMESPACE) $$ $$$(FAIRLEAD_DESCRIPTION) ${HOME} $ $(",
		"  leading and trailing  ", "'", `"`, `\`, "true", "null", "123", "0x1F", "{{ .Release.Name }}", "# no comment", "- a: b", "a: b", "%q %s", "\u2028\u00a0\ufeff|", "&amp;<b>",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			all := render(t, good().set("binding.endpointSelector", text).set("description", text))
			env := environment(manager(t, all).Spec.Template.Spec.Containers[0])
			if got := env["FAIRLEAD_ENDPOINT_SELECTOR"]; got != text {
				t.Errorf("selector %q became %q", text, got)
			}
			if got := env["FAIRLEAD_DESCRIPTION"]; got != text {
				t.Errorf("description %q became %q", text, got)
			}
		})
	}
}

func TestEdgeAddressFollowsTheAPI(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://fairlead.example.com":       "fairlead.example.com:443",
		"https://fairlead.example.com/":      "fairlead.example.com:443",
		"https://fairlead.example.com:8443/": "fairlead.example.com:8443",
		"https://10.99.0.2:8443":             "10.99.0.2:8443",
		"https://[fd00::1]":                  "[fd00::1]:443",
		"https://[fd00::1]:8443":             "[fd00::1]:8443",
	} {
		args := arguments(forwarder(t, render(t, good().set("api.url", url))).Spec.Template.Spec.Containers[0])
		if !slices.Contains(args, "--edge-address="+want) {
			t.Errorf("%s: %v; want %s", url, args, want)
		}
	}
}

// The pod must live long enough for what the forwarder does when it is told to stop.
func TestGracePeriodCoversTheDrain(t *testing.T) {
	t.Parallel()
	for drain, want := range map[string]int64{"0s": 75, "90s": 165, "15m": 975, "2h": 7275} {
		got := forwarder(t, render(t, good().set("forwarder.drainTimeout", drain))).Spec.Template.Spec.TerminationGracePeriodSeconds
		if got == nil || *got != want {
			t.Errorf("%s: grace period %v, want %d", drain, got, want)
		}
	}
}

// The program itself reads every argument and variable that the chart writes, finds nothing to object to and goes on to look for a cluster, which
// is not there.
func TestProgramAcceptsWhatTheChartWrites(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "fairlead-operator")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/fairlead-operator").CombinedOutput(); err != nil {
		t.Fatalf("building fairlead-operator: %v\n%s", err, out)
	}
	mounts := mountedFiles(t)
	run := func(c corev1.Container, more ...string) string {
		args := append(arguments(c), more...)
		for i := range args {
			args[i] = strings.Replace(args[i], "=/etc/fairlead/", "="+mounts+"/", 1)
		}
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = []string{"HOME=" + mounts}
		for name, value := range environment(c) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%v ended well without a cluster", args)
		}
		return string(out)
	}
	const accepted = "finding the Kubernetes cluster"
	inputs, _ := filepath.Glob("testdata/*.in.yaml")
	for _, input := range inputs {
		text, err := template(t, nil, "--values", input)
		if err != nil {
			t.Fatal(err)
		}
		all := parse(t, text)
		for _, o := range all {
			if o.GetKind() != "Deployment" {
				continue
			}
			c := get[appsv1.Deployment](t, all, "Deployment", o.GetName()).Spec.Template.Spec.Containers[0]
			if out := run(c); !strings.Contains(out, accepted) {
				t.Errorf("%s: %s %v: %s", input, o.GetName(), c.Args, out)
			}
			if out := run(c, "--no-such-flag"); strings.Contains(out, accepted) {
				t.Errorf("%s: an unknown flag passes, so this test proves nothing", input)
			}
		}
	}
}

// mountedFiles writes what the pods find below /etc/fairlead.
func mountedFiles(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, content := range map[string]string{"credentials/api-key": "flk_x", "credentials/authtoken": "flt_x", "ca/ca.crt": string(authority)} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Arguments can be read by everybody on the node, and Secrets only by those who mount them.
func TestSecretsAreOnlyInTheSecret(t *testing.T) {
	t.Parallel()
	for _, o := range render(t, good()) {
		b, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "Secret" && (strings.Contains(string(b), "secret-of-the-key") || strings.Contains(string(b), "secret-of-the-token")) {
			t.Errorf("%s %s holds a secret", o.GetKind(), o.GetName())
		}
	}
}
