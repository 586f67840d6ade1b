// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const module = "github.com/fairlead-dev/fairlead"

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// packages asks the go command for every package of the module, with its direct imports and its
// whole graph, tests left out.
func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	found := map[string]goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p goPackage
		must.Succeed(t, dec.Decode(&p))
		found[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
	return found
}

// A rule forbids imports to the packages below some paths.
type rule struct {
	name   string
	of     []string // packages, or folders when they end in "/"
	deep   bool     // the whole graph, not only the direct imports
	forbid []string // import paths with what is below them, or prefixes when they end in "/" or "."
	exact  bool     // the import paths alone, without what is below them
	except []string // packages, or with a trailing slash their folders, that the rule does not cover
	allow  []string // import paths, in spite of forbid
	why    string
}

var rules = []rule{
	{
		name: "the agent knows no Kubernetes", of: []string{"cmd/fairlead"}, deep: true,
		forbid: []string{"k8s.io/", "sigs.k8s.io/controller-runtime"},
		why:    "its trust domain ends outside the cluster, and the binary stays small",
	},
	{
		name: "the server has no client of Kubernetes", of: []string{"cmd/fairlead-server", "internal/quickstart"},
		deep:   true,
		forbid: []string{"k8s.io/client-go", "k8s.io/api", "sigs.k8s.io/controller-runtime"},
		why:    "its trust domain ends outside the cluster; a quick start's forwarder has objects without one",
	},
	{
		name: "programs do not contain each other", of: []string{"cmd/fairlead", "cmd/fairlead-operator"}, deep: true,
		forbid: []string{module + "/internal/quickstart"},
		why:    "the server alone offers a quick start, which links the service",
	},
	{
		name: "agent and operator know no SQL driver", of: []string{"cmd/fairlead", "cmd/fairlead-operator"},
		deep: true,
		forbid: []string{"modernc.org/", "github.com/jackc/", module + "/internal/service/store",
			module + "/internal/service/sqldb"},
		why: "only fairlead-server owns data",
	},
	{
		name: "the store knows no driver", of: []string{"internal/service/store", "internal/service/store/membership"},
		forbid: []string{"modernc.org/", "github.com/jackc/", "github.com/gofrs/"},
		why:    "what an engine does differently is in sqldb",
	},
	{
		name: "databases know no nouns", of: []string{"internal/service/sqldb"},
		forbid: []string{module + "/"},
		allow:  []string{module + "/internal/account", module + "/internal/goruntime/timer"},
		why:    "its errors are those of account; rows and their rules are the store's",
	},
	{
		name: "agent and operator handle no logins", of: []string{"cmd/fairlead", "cmd/fairlead-operator"}, deep: true,
		forbid: []string{module + "/internal/service/login", "github.com/coreos/go-oidc", "github.com/russellhaering/"},
		why:    "the agent checks policies with login actions; only the server carries them out",
	},
	{
		name: "login and its protocols see interfaces",
		of:   []string{"internal/service/login", "internal/service/login/"},
		forbid: []string{module + "/internal/service/store", module + "/internal/edge",
			module + "/internal/service/tunnelserver"},
		why: "so that they can be tested without a store or an edge",
	},
	{
		name:   "edge, apiserver and dashboard see interfaces",
		of:     []string{"internal/edge", "internal/service/apiserver", "internal/service/dashboard"},
		forbid: []string{module + "/internal/service/store", module + "/internal/service/tunnelserver"},
		why:    "so that they can be tested and replaced without a store or a tunnel",
	},
	{
		name: "a backend's choice sees the nouns", of: []string{"internal/service/backend"},
		forbid: []string{"github.com/", "golang.org/", "go.opentelemetry.io/"},
		allow:  []string{module + "/internal/account", module + "/internal/service/clientlimit"},
		why:    "it decides and learns; connecting is its caller's; one client is the same to every limit",
	},
	{
		name: "the tunnel knows its multiplexer and next to nothing else of ours", of: []string{"internal/tunnel"},
		forbid: []string{module + "/"},
		allow: []string{module + "/internal/goruntime/memory", module + "/internal/goruntime/timer",
			module + "/internal/tunnel/connread", module + "/internal/tunnel/mux"},
		why: "information flows one way",
	},
	{
		name: "sealed connections run over any stream", of: []string{"internal/sealed"},
		forbid: []string{module + "/", "k8s.io/"},
		allow: []string{module + "/internal/account", module + "/internal/trust", module + "/internal/tunnel",
			module + "/internal/tunnel/connread"},
		why: "forwarder, agent and SDK link it, and nothing in it believes the service",
	},
	{
		name: "the relay reads connections as the tunnel does", of: []string{"internal/tunnel/relay"},
		forbid: []string{module + "/"}, allow: []string{module + "/internal/tunnel/connread"},
		why: "it relays any two connections, and polls sockets in one way",
	},
	{
		name: "leaves import nothing of ours", of: []string{
			"internal/goruntime/memory", "internal/tunnel/mux", "internal/goruntime/stack", "internal/goruntime/timer",
			"internal/tunnel/connread",
			"internal/version", "internal/trust",
			"internal/account", "internal/printable", "internal/cli/interrupt", "internal/service/hsts",
			"internal/statustoken",
			"internal/service/clientlimit",
		},
		forbid: []string{module + "/"},
		why:    "information flows one way",
	},
	{
		name: "a traffic policy only names targets", of: []string{"internal/trafficpolicy"},
		forbid: []string{module + "/internal/edge", module + "/internal/service/backend",
			module + "/internal/tunnel",
			module + "/internal/service/store"},
		why: "the edge carries out what it says, and the agent's command checks documents with it",
	},
	{
		name: "the doctor asks kubectl", of: []string{"internal/agent/doctor"},
		forbid: []string{module + "/internal/apiclient", module + "/api/", "github.com/spf13/", "golang.org/",
			"k8s.io/",
			"sigs.k8s.io/"},
		why: "it is linked into the agent, and the account is asked through an interface",
	},
	{
		name: "the nouns need only the standard library", of: []string{"internal/account"},
		forbid: []string{"github.com/", "golang.org/", "k8s.io/", "modernc.org/", "go.yaml.in/", "google.golang.org/"},
		why:    "everything imports account",
	},
	{
		name: "the table of the API sees the nouns", of: []string{"internal/account/resource"},
		forbid: []string{module + "/", "github.com/", "golang.org/", "k8s.io/"},
		allow:  []string{module + "/internal/account"},
		why:    "the service, its clients, the SDK and the commands import it",
	},
	{
		name: "the kinds import apimachinery only", of: []string{"api/v1alpha1"},
		forbid: []string{module + "/", "k8s.io/client-go", "k8s.io/api/", "sigs.k8s.io/controller-runtime"},
		why:    "other programs import the kinds",
	},
	{
		name: "the client of the public API is a test's", of: []string{"cmd/", "internal/", "api/", "test/"},
		deep:   true,
		forbid: []string{"github.com/ngrok/"},
		why:    "the product speaks for itself; test/client, a module of its own, drives it with that client",
	},
	{
		name: "gRPC's own tests are a program's", of: []string{"cmd/", "internal/", "api/", "test/"}, deep: true,
		forbid: []string{"google.golang.org/grpc/interop"},
		why:    "test/interop, a module of its own, is their client and server",
	},
	{
		name: "support of tests is for tests", of: []string{"cmd/", "internal/", "api/", "sdk"},
		forbid: []string{module + "/test/"},
		why:    "the product has no code for tests",
	},
	{
		name: "no package imports commands", of: []string{"internal/", "api/"},
		forbid: []string{module + "/cmd/"},
		why:    "a command is the last step of a program",
	},
	{
		name: "parts do not import their assembly", of: []string{"internal/service/", "internal/operator/"},
		forbid: []string{module + "/internal/service", module + "/internal/operator"},
		exact:  true,
		why:    "an assembly imports its parts",
	},
	{
		name: "the service stands alone", of: []string{"internal/service", "internal/service/"}, deep: true,
		forbid: []string{module + "/internal/agent", module + "/internal/operator", module + "/api/"},
		why:    "three programs, three trust domains: what they share lies beside their folders",
	},
	{
		name: "the agent stands alone", of: []string{"internal/agent", "internal/agent/"}, deep: true,
		forbid: []string{module + "/internal/service", module + "/internal/operator", module + "/api/"},
		why:    "three programs, three trust domains: what they share lies beside their folders",
	},
	{
		name: "the agent's library has no edge", of: []string{"internal/agent", "sdk"}, deep: true,
		forbid: []string{module + "/internal/edge", module + "/internal/trafficpolicy"},
		why:    "programs that embed it would link CEL; it serves sealed connections through an interface",
	},
	{
		name: "the operator stands alone", of: []string{"internal/operator", "internal/operator/"}, deep: true,
		except: []string{"internal/operator/exporter", "internal/operator/exporter/"},
		forbid: []string{module + "/internal/service", module + "/internal/agent"},
		why:    "three programs, three trust domains: what they share lies beside their folders",
	},
	{
		name: "the exporter is an agent in a cluster",
		of:   []string{"internal/operator/exporter", "internal/operator/exporter/"}, deep: true,
		forbid: []string{module + "/internal/service", module + "/internal/operator/forwarder",
			"modernc.org/", "github.com/jackc/"},
		why: "the operator's third process joins two trust domains: it imports the agent, and nothing of the service",
	},
	{
		name: "the SDK is an agent in other programs", of: []string{"sdk"}, deep: true,
		forbid: []string{module + "/internal/service", module + "/internal/operator", module + "/api/",
			"k8s.io/", "modernc.org/", "github.com/jackc/", "github.com/spf13/"},
		why: "what it links, every program that embeds it links",
	},
	{
		name: "the product does not import its SDK", of: []string{"cmd/", "internal/", "api/"},
		forbid: []string{module + "/sdk"},
		why:    "information flows one way",
	},
	{
		name: "what the programs share knows none of them",
		of: []string{
			"internal/account", "internal/account/resource", "internal/apiclient", "internal/cli", "internal/cli/",
			"internal/clusterset", "internal/edge", "internal/edge/",
			"internal/goruntime/",
			"internal/printable", "internal/sealed", "internal/sealed/", "internal/selector", "internal/statustoken",
			"internal/storecache",
			"internal/trafficpolicy", "internal/trust",
			"internal/tunnel", "internal/tunnel/", "internal/version", "internal/webpage",
		},
		deep:   true,
		forbid: []string{module + "/internal/service", module + "/internal/operator", module + "/internal/agent"},
		why:    "information flows one way",
	},
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	all := packages(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			checked := 0
			for path, p := range all {
				if !r.covers(path) {
					continue
				}
				checked++
				imports := p.Imports
				if r.deep {
					imports = p.Deps
				}
				for _, imp := range imports {
					if r.forbids(imp) {
						t.Errorf("%s imports %s: %s", path, imp, r.why)
					}
				}
			}
			if checked == 0 {
				t.Errorf("the rule covers no package: %v", r.of)
			}
		})
	}
}

func (r rule) covers(path string) bool {
	matches := func(of string) bool { return path == of || strings.HasSuffix(of, "/") && strings.HasPrefix(path, of) }
	return slices.ContainsFunc(r.of, matches) && !slices.ContainsFunc(r.except, matches)
}

func (r rule) forbids(imp string) bool {
	return !slices.Contains(r.allow, imp) && slices.ContainsFunc(r.forbid, func(f string) bool {
		return imp == f || !r.exact && (strings.HasPrefix(imp, strings.TrimSuffix(f, "/")+"/"))
	})
}
