// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Namespaces of TestSecurity_PageHasRightsOfRoles by the word that docs/secure/credentials.md has
// for them. "everywhere" is each of them.
var wordedNamespaces = map[string]string{"own": namespace, "listed": "team-a", "kube-system": "kube-system",
	"other": "default"}

// documentedRight is a row of the page's tables of rights.
type documentedRight struct {
	verbs                  []string
	resource, name         string // name is "" for all
	byDefault, whereListed []string
	onlyWith               string // a value of the chart, "" = none
}

var codeSpan = regexp.MustCompile("`([^`]*)`")

// documentedRights reads the table below the role's heading.
func documentedRights(t *testing.T, role string) []documentedRight {
	t.Helper()
	page, err := os.ReadFile("../../docs/secure/credentials.md")
	must.Succeed(t, err)
	_, text, found := strings.Cut(string(page), "\n### The "+role+"'s token of Kubernetes\n")
	if !found {
		t.Fatalf("docs/secure/credentials.md has no heading for the %s", role)
	}
	text, _, _ = strings.Cut(text, "\n#")
	var rows []documentedRight
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 6 {
			t.Fatalf("docs/secure/credentials.md: %d cells in %s", len(cells), line)
		}
		spans := codeSpan.FindAllStringSubmatch(cells[0], -1)
		row := documentedRight{resource: spans[0][1], verbs: words(cells[1]), byDefault: words(cells[2]),
			whereListed: words(cells[3])}
		if len(spans) > 1 {
			row.name = strings.NewReplacer("NAMESPACE", namespace, "RELEASE", release).Replace(spans[1][1])
		}
		if value := codeSpan.FindStringSubmatch(cells[4]); value != nil {
			row.onlyWith = value[1]
		}
		rows = append(rows, row)
	}
	return rows
}

func words(cell string) []string {
	all := strings.Split(strings.TrimSpace(cell), ", ")
	return slices.DeleteFunc(all, func(w string) bool { return w == "–" || w == "" })
}

// in returns what the rows give in the namespace that the page calls word, as text. enabled are the
// chart's values that are on; listed is whether binding.namespaces.allow has namespaces.
func in(rows []documentedRight, word string, listed bool, enabled []string) []string {
	var all []string
	for _, row := range rows {
		where := row.byDefault
		if listed {
			where = row.whereListed
		}
		if row.onlyWith != "" && !slices.Contains(enabled, row.onlyWith) ||
			!slices.Contains(where, word) && !slices.Contains(where, "everywhere") {
			continue
		}
		all = append(all, worded("", row.resource, []string{row.name}, row.verbs)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// worded returns rights as the page words them: "boundendpoints.bindings.fairlead.dev/status: get".
func worded(group, resource string, names, verbs []string) []string {
	if group != "" {
		kind, subresource, _ := strings.Cut(resource, "/")
		resource = strings.TrimSuffix(kind+"."+group+"/"+subresource, "/")
	}
	if len(names) == 0 {
		names = []string{""}
	}
	var all []string
	for _, name := range names {
		for _, verb := range verbs {
			all = append(all, strings.TrimSpace(resource+" "+name)+": "+verb)
		}
	}
	return all
}

// rulesOf asks the API server, as the ServiceAccount, what it may do in the namespace, as
// `kubectl auth can-i --list` does.
func (c *cluster) rulesOf(t *testing.T, serviceAccount, in string) []string {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + serviceAccount,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace,
			"system:authenticated"},
	}
	as, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must.Succeed(t, err)
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: in},
	}
	if err := as.Create(t.Context(), review); err != nil || review.Status.Incomplete {
		t.Fatalf("%v, incomplete: %s", err, review.Status.EvaluationError)
	}
	var all []string
	for _, rule := range review.Status.ResourceRules {
		for _, resource := range rule.Resources {
			for _, group := range rule.APIGroups {
				all = append(all, worded(group, resource, rule.ResourceNames, rule.Verbs)...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestSecurity_PageHasRightsOfRoles installs the chart in four ways and compares what the API server
// says that each ServiceAccount may do with the tables of docs/secure/credentials.md.
func TestSecurity_PageHasRightsOfRoles(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	must.Succeed(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}))
	exporting := []string{"export.enabled", "export.services"}
	everything := append(exporting, "forwarder.podIdentity.enabled", "clusterset.enabled", "api.caBundle")
	for _, install := range []struct {
		enabled []string
		listed  bool
	}{{nil, false}, {everything, false}, {nil, true}, {exporting, true}} {
		var args []string
		for _, value := range install.enabled {
			set := value + "=true"
			if value == "api.caBundle" {
				set = value + "=-----BEGIN CERTIFICATE-----"
			}
			args = append(args, "--set", set)
		}
		if len(args) > 0 {
			args = append(args, "--set", "credentials.exporterApiKey=flk_exporter,export.clusterID=eu-1")
		}
		if install.listed {
			args = append(args, "--set", "binding.namespaces.allow={team-a}")
		}
		c.install(release, namespace, args...)
		for _, role := range []string{"manager", "forwarder", "exporter", "test"} {
			rows := documentedRights(t, role)
			if role == "exporter" && len(install.enabled) == 0 {
				rows = nil // there is none
			}
			for word, ns := range wordedNamespaces {
				page, granted := in(rows, word, install.listed, install.enabled), c.granted(t, role, ns)
				for _, right := range granted {
					if !slices.Contains(page, right) {
						t.Errorf("docs/secure/credentials.md lacks a right of the %s in %s "+
							"(%s; namespaces listed: %v; %v): %s",
							role, ns, word, install.listed, install.enabled, right)
					}
				}
				for _, right := range page {
					if !slices.Contains(granted, right) {
						t.Errorf("docs/secure/credentials.md has what the %s may not in %s "+
							"(%s; namespaces listed: %v; %v): %s",
							role, ns, word, install.listed, install.enabled, right)
					}
				}
			}
		}
		c.uninstall(release, namespace)
	}
}

// granted returns what the role may do in the namespace and an account without a role may not.
func (c *cluster) granted(t *testing.T, role, in string) []string {
	t.Helper()
	everybody := c.rulesOf(t, "of-no-role", in)
	return slices.DeleteFunc(c.rulesOf(t, release+"-"+role, in), func(right string) bool {
		return slices.Contains(everybody, right)
	})
}
