// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/statustoken"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the golden files")

// The requests of the checks about http://api.demo, and the files that hold what a real
// kubectl answered.
const (
	askContext  = "config current-context"
	askTarget   = "get services api --namespace demo"
	askOps      = "get kubernetesoperators.bindings.fairlead.dev --all-namespaces"
	askBEP      = "get boundendpoints.bindings.fairlead.dev --field-selector=metadata.name=api.demo --all-namespaces"
	askNS       = "get namespaces demo"
	askUpstream = "get services ep-06gvigq0knnbvqpcfa72pab358 --namespace fairlead"
	askDNS      = "get endpointslices.discovery.k8s.io --namespace kube-system -l k8s-app=kube-dns"
	askPods     = "get pods --namespace fairlead -l " +
		"app.kubernetes.io/name=fairlead-forwarder,app.kubernetes.io/instance=fairlead-operator"
	askSlices = "get endpointslices.discovery.k8s.io --namespace fairlead -l " +
		"kubernetes.io/service-name=ep-06gvigq0knnbvqpcfa72pab358"
	askAccess       = "get endpointaccesses.bindings.fairlead.dev --namespace demo"
	askCaller       = "get pods web-0 --namespace demo"
	askTargetSlices = "get endpointslices.discovery.k8s.io --namespace demo -l kubernetes.io/service-name=api"
	askManagers     = "get pods --namespace fairlead -l " +
		"app.kubernetes.io/name=fairlead-manager,app.kubernetes.io/instance=fairlead-operator"

	askAnyPods = "get pods --namespace fairlead -l app.kubernetes.io/name=fairlead-forwarder"
	askOpsAt   = "get kubernetesoperators.bindings.fairlead.dev --namespace fairlead"
	askBEPAt   = "get boundendpoints.bindings.fairlead.dev --field-selector=metadata.name=api.demo --namespace fairlead"
	execGetent = "exec --namespace demo web-0 -- getent ahosts api.demo"
	execLookup = "exec --namespace demo web-0 -- nslookup api.demo.svc.cluster.local."
	execPython = "exec --namespace demo web-0 -- python3 -c import socket; print(socket.getaddrinfo('api.demo', " +
		"None)[0][4][0])"
	execBox = "exec --namespace demo web-0 -- busybox nslookup api.demo.svc.cluster.local."
)

// operatorUID is that of the recorded KubernetesOperator, and askOne and askTwo ask its forwarders
// for their status.
const operatorUID = "0a7e1c1e-8f0c-4a43-9d2f-4f6f3f0b7d11"

var askOne, askTwo = askStatus("fairlead-operator-forwarder-one"), askStatus("fairlead-operator-forwarder-two")

func askStatus(pod string) string {
	return "get --raw /api/v1/namespaces/fairlead/pods/" + pod + ":8081/proxy/status?token=" +
		statustoken.Derive(operatorUID,
			pod)
}

// now is twelve seconds after the last connection of the recording.
var now = time.Date(2026, 11, 20, 14, 5, 12, 0, time.UTC)

type answer struct {
	out, stderr string
	err         error
	hang        bool
}

// fake is kubectl before a recorded cluster.
type fake struct {
	t       *testing.T
	o       Options
	answers map[string]*answer

	mu    sync.Mutex
	calls [][]string
}

// recorded is the cluster in which all is well.
func recorded(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, answers: map[string]*answer{askContext: {out: "staging\n"}, askExports: {out: `{"items":[]}`}}}
	for ask, file := range map[string]string{
		askTarget: "target", askOps: "operators", askBEP: "boundendpoints", askNS: "namespace", askUpstream: "upstream",
		askDNS: "dns", askPods: "forwarders",
		askSlices: "slices", askOne: "status-one", askTwo: "status-two", askManagers: "managers", askOpsAt: "operators",
		askAnyPods: "forwarders", askBEPAt: "boundendpoints",
	} {
		out, err := os.ReadFile(filepath.Join("testdata", "recorded", file+".json"))
		must.Succeed(t, err)
		f.answers[ask] = &answer{out: string(out)}
	}
	f.none(askAccess)
	f.put(askCaller, `{"metadata":{"name":"web-0","namespace":"demo","labels":{"app":"web"}},`+
		`"spec":{"serviceAccountName":"web"}}`)
	for _, ask := range []string{askOne, askTwo} { // as one asks who may not read the KubernetesOperator
		path, _, _ := strings.Cut(ask, "?")
		f.answers[path] = &answer{
			stderr: "Error from server (Forbidden): the status is for those who may read the KubernetesOperator; " +
				"fairlead doctor asks for them",
			err: errors.New("exit status 1"),
		}
	}
	f.o = Options{URL: parse(t, "http://api.demo"), Kubectl: f.run, Now: now}
	return f
}

func parse(t *testing.T, raw string) account.EndpointURL {
	t.Helper()
	u, err := account.ParseEndpointURL(raw)
	must.Succeed(t, err)
	return u
}

func (f *fake) run(ctx context.Context, args []string) (stdout, stderr []byte, err error) {
	f.mu.Lock()
	f.calls = append(f.calls, slices.Clone(args))
	f.mu.Unlock()
	var words []string
	if f.o.ExportContext != "" && slices.Contains(args, "--context="+f.o.ExportContext) {
		words = append(words, strings.TrimSpace(atExport))
	}
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--ignore-not-found", strings.HasPrefix(a, "--request-timeout="), strings.HasPrefix(a, "--context="),
			strings.HasPrefix(a, "--kubeconfig="):
		case a == "-o":
			i++
		default:
			words = append(words, a)
		}
	}
	a := f.answers[strings.Join(words, " ")]
	switch {
	case a == nil:
		f.t.Errorf("kubectl was asked for %q", words)
		return nil, nil, errors.New("not recorded")
	case a.hang:
		<-ctx.Done()
		return nil, nil, errors.New("signal: killed")
	case a.err != nil:
		return nil, nil, a.err
	case a.stderr != "":
		return nil, []byte("E1120 14:05:12.000000 1 memcache.go:287] noise\n" + a.stderr + "\n"),
			errors.New("exit status 1")
	}
	return []byte(a.out), nil, nil
}

// replace changes a text in what was recorded, which must hold it.
func (f *fake) replace(ask, old, new string) {
	f.t.Helper()
	a := f.answers[ask]
	if !strings.Contains(a.out, old) {
		f.t.Fatalf("the answer to %q does not hold %q", ask, old)
	}
	a.out = strings.ReplaceAll(a.out, old, new)
}

func (f *fake) put(ask, out string)       { f.answers[ask] = &answer{out: out} }
func (f *fake) refuse(ask, stderr string) { f.answers[ask] = &answer{stderr: stderr} }

// none makes objects not exist: those that were asked for by name, or all of a list.
func (f *fake) none(asks ...string) {
	for _, ask := range asks {
		f.put(ask, "")
		if strings.Contains(ask, " -l ") || strings.Contains(ask, "bindings.fairlead.dev") {
			f.put(ask, `{"apiVersion":"v1","items":[],"kind":"List","metadata":{"resourceVersion":""}}`)
		}
	}
}

// forbid refuses as an API server does.
func (f *fake) forbid(asks ...string) {
	for _, ask := range asks {
		resource, _, _ := strings.Cut(strings.Fields(strings.TrimPrefix(ask, atExport))[1], ".")
		f.refuse(ask, `Error from server (Forbidden): `+resource+` is forbidden: User "dev" cannot get resource "`+
			resource+
			`" in API group "" at the cluster scope`)
	}
}

// fakeAccount answers with its endpoints, or an error.
type fakeAccount struct {
	id        string
	endpoints []account.Endpoint
	err       error
}

// ListEndpoints implements Account.
func (a *fakeAccount) ListEndpoints(context.Context, account.EndpointFilter) (string, []account.Endpoint, error) {
	return a.id, a.endpoints, a.err
}

// golden compares what is printed with the file of the test's name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", strings.ReplaceAll(name, " ", "-"))
	if *update {
		must.Succeed(t, os.WriteFile(file, got, 0o600))
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run the test with -update, and read the difference", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the golden file; got:\n%s\nwant:\n%s", name, got, want)
	}
}
