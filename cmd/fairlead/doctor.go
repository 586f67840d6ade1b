// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/agent/doctor"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/version"
)

const doctorHelp = `Check each hop of a call to an endpoint, from the pod to the upstream, and name the broken one.

The doctor asks the cluster through your own kubectl, with your rights. It changes nothing and does
not connect to the upstream. A hop that you may not read is shown as unknown. With an API key the
doctor asks the account too; without one, it uses the operator's copy of the endpoint.

An endpoint may be exported by another cluster, through an AgentEndpoint: --export-context names that
cluster's context, and the doctor checks the object, the exporters and the Service there too. With
agentendpoint/NAMESPACE/NAME in place of the URL it checks these alone, in the cluster of --context; with
--export-context as well, it also checks the path of a call in the cluster of --context.

A Service that clusters export to each other (multicluster.x-k8s.io) is checked by its name in the cluster
that calls, NAME.NAMESPACE.svc.clusterset.local, or as serviceexport/NAMESPACE/NAME in the cluster that
exports it; with --export-context, both are.

A public endpoint, https://HOST or http:// and a host of three or more parts, is checked from this machine:
DNS, the public listener, its certificate, and what it answers to one GET request as browsers send it,
which the upstream sees. With an API key the account is asked for the endpoint, its domain and its agent.

Without a URL, the doctor checks how this machine reaches the service: settings, authtoken, the
server and its certificate, the clock, and a session with the authtoken. It asks no cluster.

Exit codes: 0 when no hop is broken, 1 when one is, 2 for wrong usage.`

const doctorExample = `  fairlead doctor http://hello.demo
  fairlead doctor                                                # from this machine to the service
  fairlead doctor https://app.example.com --api-key-file key     # a public endpoint
  fairlead doctor tcp://postgres.demo:5432 --context staging --verbose
  fairlead doctor http://hello.demo --from-pod demo/web-0        # and asks for that pod
  fairlead doctor http://api.demo --context b --export-context a # called in cluster b, exported by cluster a
  fairlead doctor agentendpoint/demo/api --context a             # what cluster a exports
  fairlead doctor hello.demo.svc.clusterset.local --context b --export-context a # exported by a, called in b
  fairlead doctor serviceexport/demo/hello --context a           # a ServiceExport of cluster a
  fairlead doctor http://hello.demo --api-key-file key -o json | jq -r .broken`

// errBroken sets exit code 1 after the report was printed; it is not printed itself.
var errBroken = errors.New("a hop is broken")

// diagnose is `fairlead doctor`.
type diagnose struct {
	console    console
	settings   agentconfig.Flags
	o          doctor.Options
	apiKeyFile string
	output     string
	verbose    bool
	public     bool // o.URL is that of a public endpoint
}

// doctorAgent is how doctor names itself to the service.
const doctorAgent = "fairlead doctor"

func newDoctor(c console) *cobra.Command {
	d := &diagnose{console: c}
	cmd := &cobra.Command{
		Use:     "doctor [URL|NAME.NAMESPACE.svc.clusterset.local|KIND/NAMESPACE/NAME]",
		Short:   "Find the broken hop between a pod and an endpoint's upstream",
		Long:    doctorHelp,
		Example: doctorExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) <= 1 {
				return nil
			}
			return cli.Usagef(
				"%s takes one argument, the endpoint's URL, and got %d; e.g. fairlead doctor http://hello.demo",
				cmd.CommandPath(), len(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), args) },
	}
	d.addSources(cmd)
	flags := cmd.Flags()
	flags.StringVar(&d.o.ExportContext, "export-context", "",
		"`CONTEXT` of the cluster whose AgentEndpoint or ServiceExport exports it")
	flags.StringVar(&d.o.FromPod, "from-pod", "",
		"`NAMESPACE/POD` that resolves the hostname, through kubectl exec, and whose right to call is checked")
	flags.StringVar(&d.settings.AuthtokenFile, "authtoken-file", "",
		"`FILE` that holds the authtoken, without a URL; - for standard input")
	cli.CompleteFlag(cmd, "export-context", d.completeContexts)
	flags.BoolVar(&d.verbose, "verbose", false, "show the evidence for each hop")
	return cmd
}

// addSources adds the flags about whom to ask, and the form of the answer.
func (d *diagnose) addSources(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&d.o.Context, "context", "", "`CONTEXT` of the kubeconfig; default kubectl's current one")
	flags.StringVar(&d.o.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE`; default kubectl's")
	flags.StringVar(&d.o.OperatorNamespace, "operator-namespace", "",
		"`NAMESPACE` of the operator; default: all are searched")
	flags.StringVar(&d.apiKeyFile, "api-key-file", "",
		"`FILE` that holds an API key ("+envAPIKey+" holds one too), to ask the account")
	flags.StringVarP(&d.output, "output", "o", "table", "table or json")
	cli.CompleteValues(cmd, "output", "table", "json")
	cli.CompleteFlag(cmd, "context", d.completeContexts)
	addSettings(cmd, &d.settings)
}

// completeContexts offers the contexts of the kubeconfig.
func (d *diagnose) completeContexts(
	cmd *cobra.Command, _ []string, prefix string,
) (all []cobra.Completion, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	args := []string{"config", "get-contexts", "--output=name"}
	if d.o.Kubeconfig != "" {
		args = append(args, "--kubeconfig="+d.o.Kubeconfig)
	}
	names, _, err := doctor.ExecRunner("kubectl")(ctx, args)
	for name := range strings.FieldsSeq(string(names)) {
		if err == nil && strings.HasPrefix(name, prefix) {
			all = append(all, name)
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

func (d *diagnose) run(ctx context.Context, args []string) error {
	if err := d.parse(args); err != nil {
		return err
	}
	report, err := d.report(ctx, len(args) == 0)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // the findings are those of an interrupted check
		return errors.New("interrupted")
	}
	if err := d.print(report); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if !report.OK {
		return errBroken
	}
	return nil
}

// report checks the path of a call, or that from this machine to the service.
func (d *diagnose) report(ctx context.Context, ofMachine bool) (path.Report, error) {
	if ofMachine {
		return diagnoseMachine(ctx, d.console, d.settings), nil
	}
	client, err := accountClient(d.console, d.settings, d.apiKeyFile, doctorAgent)
	if err != nil {
		return path.Report{}, err
	}
	if client != nil {
		defer client.CloseIdleConnections()
		d.o.Account = accountEndpoints{client}
	}
	if d.public {
		return d.runPublic(ctx)
	}
	d.o.Kubectl = doctor.ExecRunner("kubectl")
	return doctor.Run(ctx, d.o), nil
}

// runPublic checks a public endpoint. The authority of --ca-file is trusted beside the system's.
func (d *diagnose) runPublic(ctx context.Context) (path.Report, error) {
	s, err := loadSettings(d.settings, d.console)
	if err = withoutCredentialErrors(err); err != nil {
		return path.Report{}, err
	}
	o := doctor.PublicOptions{URL: d.o.URL, Account: d.o.Account, Resolver: net.DefaultResolver,
		UserAgent: doctorAgent + "/" + version.String(), Timeout: machineTimeout}
	if u, err := account.ParseServerURL("server", s.ServerURL.Text); err == nil {
		o.Server = u.Hostname()
	}
	if s.CAFile.Text == "" {
		return doctor.RunPublic(ctx, o), nil
	}
	pem, err := os.ReadFile(s.CAFile.Text)
	if err != nil {
		return path.Report{}, cli.Usagef("%s: %v", trustSource(s), err)
	}
	if o.Roots, err = x509.SystemCertPool(); err != nil {
		o.Roots = x509.NewCertPool()
	}
	o.Roots.AppendCertsFromPEM(pem)
	return doctor.RunPublic(ctx, o), nil
}

// accountEndpoints is the doctor.Account of an API key.
type accountEndpoints struct{ client *apiclient.Client }

// ListEndpoints implements doctor.Account.
func (a accountEndpoints) ListEndpoints(
	ctx context.Context, f account.EndpointFilter,
) (accountID string, all []account.Endpoint, err error) {
	found, err := a.client.ListEndpoints(ctx, f)
	if err != nil {
		return "", nil, err
	}
	return found.AccountID, found.Endpoints, nil
}

var objectName = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*/[a-z0-9][-.a-z0-9]*$`)

// parse validates arguments and flags. A value that begins with a dash would be a flag of kubectl.
func (d *diagnose) parse(args []string) error {
	if len(args) > 0 {
		if err := d.parseEndpoint(args[0]); err != nil {
			return err
		}
	}
	switch {
	case d.public && d.asksCluster():
		return cli.Usagef("fairlead doctor asks no cluster about a public URL: leave the flags about it out")
	case len(args) == 0 && (d.asksCluster() || d.apiKeyFile != ""):
		return cli.Usagef(
			"fairlead doctor without a URL asks no cluster: name the endpoint's URL, e.g. fairlead doctor " +
				"http://hello.demo, or leave the flags about it out")
	case d.output != "table" && d.output != "json":
		return cli.Usagef("--output %q: must be table or json", d.output)
	case d.o.FromPod != "" && !objectName.MatchString(d.o.FromPod):
		return cli.Usagef("--from-pod %q: give NAMESPACE/POD", d.o.FromPod)
	case strings.HasPrefix(d.o.OperatorNamespace, "-"):
		return cli.Usagef("--operator-namespace %q: give the name of a namespace", d.o.OperatorNamespace)
	}
	return nil
}

// asksCluster reports whether a flag is about a cluster.
func (d *diagnose) asksCluster() bool {
	return d.o.Context != "" || d.o.ExportContext != "" || d.o.Kubeconfig != "" || d.o.OperatorNamespace != "" ||
		d.o.FromPod != ""
}

// objectKinds are the kinds of objects that can be checked, as kubectl knows them, with their
// names.
var objectKinds = map[string]string{
	"agentendpoint": "agentendpoint", "agentendpoints": "agentendpoint", "aep": "agentendpoint",
	"serviceexport": "serviceexport", "serviceexports": "serviceexport", "svcex": "serviceexport",
	"serviceimport": "serviceimport", "serviceimports": "serviceimport", "svcim": "serviceimport",
}

// clustersetName is that of an import: the namespace is its second part. The domain of a cluster's
// own Services is none of imports.
var clustersetName = regexp.MustCompile(
	`^([a-z0-9][-a-z0-9]*)\.([a-z0-9][-a-z0-9]*)\.svc\.([a-z0-9][-.a-z0-9]*[a-z0-9])\.?$`)

// parseEndpoint reads the endpoint's URL, the object that exports it, or the name of an import.
func (d *diagnose) parseEndpoint(arg string) error {
	kind, object, found := strings.Cut(arg, "/")
	if name := objectKinds[kind]; name != "" {
		if !found || !objectName.MatchString(object) {
			return cli.Usagef("%q: give %s/NAMESPACE/NAME, or the endpoint's URL", arg, name)
		}
		*map[string]*string{"agentendpoint": &d.o.AgentEndpoint, "serviceexport": &d.o.ServiceExport,
			"serviceimport": &d.o.ServiceImport}[name] = object
		return nil
	}
	if part := clustersetName.FindStringSubmatch(arg); part != nil && part[3] != "cluster.local" {
		d.o.ServiceImport, d.o.ClustersetDomain = part[2]+"/"+part[1], part[3]
		return nil
	}
	var err error
	if d.o.URL, err = account.ParseEndpointURL(arg); err == nil {
		return nil
	}
	u, publicErr := account.ParseBindingURL(account.BindingPublic, arg)
	if publicErr == nil {
		d.o.URL, d.public = u, true
		return nil
	}
	if strings.HasPrefix(arg, "https://") {
		return publicErr
	}
	return err
}

func (d *diagnose) print(r path.Report) error {
	r = d.console.ownNames(r)
	if d.output == "json" {
		return cli.WriteJSON(d.console.out, r)
	}
	return doctor.Print(d.console.out, r, doctor.PrintOptions{Color: d.console.color, Verbose: d.verbose})
}
