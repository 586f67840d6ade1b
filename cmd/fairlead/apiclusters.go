// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const clustersHelp = `Clusters whose ServiceAccounts act for the account: no API key and no authtoken is stored there.

A pod of the operator presents a token of its ServiceAccount, which Kubernetes makes and renews. The service
checks it with the cluster's public keys, which are given here once; it never connects to the cluster, and the
file with the keys holds nothing secret. Each subject is a ServiceAccount and what it may do: operator, forwarder
or exporter.

The token's issuer must be that of the cluster here. The cluster tells it with
  kubectl get --raw /.well-known/openid-configuration
and it is taken from there when that stands before the keys, unless --issuer is given.

When the cluster gets new keys, its manager hands them over, with a token of a key that is known. With
--key-source issuer, the service reads them from the issuer's URL. With --key-source manual, add them before it
signs with them, and remove the old ones an hour later.`

const clustersExample = `  { kubectl get --raw /.well-known/openid-configuration &&
    kubectl get --raw /openid/v1/jwks; } | fairlead api clusters create --name prod --jwks-file -
  fairlead api clusters create --name eu --issuer https://oidc.example.com/eu --key-source issuer
  kubectl get --raw /openid/v1/jwks | fairlead api clusters update cl-06hj… --add-jwks-file -
  fairlead api clusters update cl-06hj… --remove-key 9c31…
  fairlead api clusters update cl-06hj… --add-subject exporter=apps/exporter --acl 'export:apps/*'
  fairlead api events list --type cluster.token_refused -o wide`

// apiClusters makes the commands of clusters.
func apiClusters(c console) *cobra.Command {
	r := resource.At(resource.Clusters)
	group := &cobra.Command{Use: "clusters", Aliases: []string{r.Noun},
		Short: "Clusters whose ServiceAccounts act for the account", Long: clustersHelp, Example: clustersExample}
	group.AddCommand(apiList(c, r), apiGet(c, r), apiCreateCluster(c, r), apiUpdateCluster(c, r), apiDelete(c, r))
	return group
}

// clusterFlags are the flags of clusters that are no plain fields.
type clusterFlags struct {
	jwksFile           string
	subjects, acl      []string
	namespace, release string // create
	issuerAssumed      bool   // issuerAssumed is set when neither flag nor discovery document gave the issuer.

	addJWKSFile                        string // update
	removeKeys, addSubjects, resetUIDs []string
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.jwksFile, "jwks-file", "", "`FILE` with the cluster's public keys, as "+
		"`kubectl get --raw /openid/v1/jwks` prints them, after its discovery document or alone; - for standard input")
	cmd.Flags().StringArrayVar(&f.subjects, "subject", nil, "`ROLE=NAMESPACE/NAME` of a ServiceAccount, the role "+
		"operator, forwarder or exporter; may be repeated; in place of those there are, or of the chart's")
	cmd.Flags().StringArrayVar(&f.acl, "acl", nil, "`RULE` of the exporters among the subjects that are given, or "+
		"of the chart's: export:<namespace>/<name>, bind:<url pattern>, backend:<id> or internal:<host>; may be "+
		"repeated; default export:* and bind:*")
}

func apiCreateCluster(c console, r resource.Resource) *cobra.Command {
	a, in, own := &apiCall{console: c}, fieldFlags{console: c}, clusterFlags{}
	cmd := a.command(r, "create", "Create a cluster, with the ServiceAccounts of the operator's chart",
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			fields, err := in.read(r.Fields)
			if err == nil {
				err = own.complete(&in, fields)
			}
			if err != nil {
				return err
			}
			made, err := api.CreateObject(ctx, r.Path, fields)
			if err := a.print(made, err); err != nil || !a.isTable() {
				return err
			}
			return a.printInstallCommand(made, &own)
		})
	cmd.Example = strings.Join(strings.Split(clustersExample, "\n")[:3], "\n")
	in.add(cmd, r.Fields, true)
	own.add(cmd)
	cmd.Flags().StringVar(&own.namespace, "namespace", "fairlead", "`NAMESPACE` of the operator's release")
	cmd.Flags().StringVar(&own.release, "release", "fairlead-operator", "`NAME` of the operator's release")
	return cmd
}

// complete adds what the flags and their defaults say to the fields of a new cluster.
func (f *clusterFlags) complete(in *fieldFlags, fields map[string]any) error {
	if f.jwksFile != "" {
		if err := in.readJWKS(fields, "jwks", "--jwks-file", f.jwksFile); err != nil {
			return err
		}
	}
	switch {
	case fields["name"] == nil:
		return cli.Usagef("--name is missing: a name for the cluster, such as prod")
	case fields["jwks"] == nil && fields["key_source"] != string(account.KeysFromIssuer):
		return cli.Usagef("--jwks-file is missing: kubectl get --raw /openid/v1/jwks | fairlead api clusters create " +
			"--name NAME --jwks-file -; or --key-source issuer, where the issuer's URL publishes the keys")
	case fields["issuer"] == nil:
		fields["issuer"], f.issuerAssumed = account.DefaultIssuer, true
	}
	if len(f.subjects) > 0 {
		subjects, err := parseSubjects(f.subjects, f.acl)
		fields["subjects"] = subjects
		return err
	}
	if fields["subjects"] == nil {
		fields["subjects"] = chartSubjects(f.namespace, f.release, f.acl)
	}
	return nil
}

// chartFullname returns how the operator's chart names the objects of a release.
func chartFullname(release string) string {
	const chart = "fairlead-operator"
	if strings.Contains(release, chart) {
		return release
	}
	return release + "-" + chart
}

// chartSubjects returns the ServiceAccounts of a release of the operator's chart.
func chartSubjects(namespace, release string, exporterACL []string) []account.SubjectPatch {
	var all []account.SubjectPatch
	for _, of := range []struct {
		role      account.SubjectRole
		component string
	}{
		{account.RoleOperator, "manager"}, {account.RoleForwarder, "forwarder"}, {account.RoleExporter, "exporter"},
	} {
		all = append(all, account.SubjectPatch{Namespace: namespace, Role: of.role,
			ServiceAccount: chartFullname(release) + "-" + of.component, ACL: aclOf(of.role, exporterACL)})
	}
	return all
}

func aclOf(role account.SubjectRole, exporterACL []string) *[]string {
	if role != account.RoleExporter || len(exporterACL) == 0 {
		return nil
	}
	return &exporterACL
}

// parseSubjects reads the values of --subject.
func parseSubjects(texts, exporterACL []string) ([]account.SubjectPatch, error) {
	all := []account.SubjectPatch{}
	for _, text := range texts {
		role, of, ok := strings.Cut(text, "=")
		namespace, name, slash := strings.Cut(of, "/")
		if !ok || !slash || role == "" || namespace == "" || name == "" {
			return nil, cli.Usagef("--subject %q: must be ROLE=NAMESPACE/NAME, for example "+
				"operator=fairlead/fairlead-operator-manager", text)
		}
		all = append(all, account.SubjectPatch{Namespace: namespace, ServiceAccount: name,
			Role: account.SubjectRole(role), ACL: aclOf(account.SubjectRole(role), exporterACL)})
	}
	return all, nil
}

// printInstallCommand tells how the chart is installed in the cluster that was created.
func (a *apiCall) printInstallCommand(made json.RawMessage, f *clusterFlags) error {
	var created account.Cluster
	if err := json.Unmarshal(made, &created); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	base, accountID, ok := strings.Cut(created.Audience, "/accounts/")
	if !ok {
		return fmt.Errorf("reading the answer: the audience %q has no account", screen.Escape(created.Audience))
	}
	authority := ""
	if s, err := loadSettings(a.settings, a.console); err == nil && s.CAFile.Text+s.CASHA256.Text != "" {
		authority = " --set-file api.caBundle=ca.crt"
	}
	other := ""
	if f.issuerAssumed {
		other = ", the default. EKS, GKE and AKS have their own:\n" +
			"  kubectl get --raw /.well-known/openid-configuration\n" +
			`If "issuer" differs there: fairlead api clusters update ` + screen.Escape(created.ID) + " --issuer ISSUER"
	}
	_, err := fmt.Fprintf(a.console.err, `
Install the operator in that cluster; no Secret is needed:

  helm install %s charts/fairlead-operator --namespace %s --create-namespace \
    --set api.url=%s%s \
    --set credentials.serviceAccount.enabled=true --set credentials.serviceAccount.accountID=%s \
    --set binding.enabled=true

Its tokens have the audience %s and must have the issuer
%s%s
If the operator is refused, the reason is an event:
  fairlead api events list --type cluster.token_refused -o wide
`, screen.Escape(f.release), screen.Escape(f.namespace), screen.Escape(base), authority, screen.Escape(accountID),
		screen.Escape(created.Audience), screen.Escape(created.Issuer), other)
	return err
}

func apiUpdateCluster(c console, r resource.Resource) *cobra.Command {
	a, in, own := &apiCall{console: c}, fieldFlags{console: c}, clusterFlags{}
	cmd := a.command(r, "update ID", "Change a cluster; what is not given stays",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			fields, err := in.read(r.Fields)
			if err == nil {
				err = own.update(ctx, api, &in, id, fields)
			}
			switch {
			case err != nil:
				return err
			case len(fields) == 0:
				return cli.Usagef("nothing to change is given; `fairlead api clusters update --help` lists the fields")
			}
			return a.print(api.UpdateObject(ctx, resource.ObjectPath(r.Path, id), fields))
		})
	cmd.Example = strings.Join(strings.Split(clustersExample, "\n")[3:6], "\n")
	in.add(cmd, r.Fields, false)
	own.add(cmd)
	cmd.Flags().StringVar(&own.addJWKSFile, "add-jwks-file", "",
		"`FILE` with public keys to add to those there are; - for standard input")
	cmd.Flags().StringArrayVar(&own.removeKeys, "remove-key", nil,
		"`KID` of a key to remove: tokens signed with it end within a second; may be repeated")
	cmd.Flags().StringArrayVar(&own.addSubjects, "add-subject", nil,
		"`ROLE=NAMESPACE/NAME` of a ServiceAccount to add to those there are; may be repeated")
	cmd.Flags().StringArrayVar(&own.resetUIDs, "reset-uid", nil, "`NAMESPACE/NAME` of a ServiceAccount that was "+
		"deleted and made again: the next token pins its new UID; may be repeated")
	return cmd
}
