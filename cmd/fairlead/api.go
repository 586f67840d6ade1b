// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

const apiHelp = `Read and change your account at the service, over its API.

The API key comes from the file of --api-key-file, else from FAIRLEAD_API_KEY, else from the config
file, where fairlead login puts it. The server and its authority come from the same settings as an
agent's.

A table (-o table) has the main columns, which fit into 80 characters, and with -o wide all of them. -o name prints
names such as endpoint/ep-06hj…, which commands take as ID; -o json and -o yaml print all fields, and
-o jsonpath=TEMPLATE what a template of kubectl's selects, where a list is .items:

  fairlead api endpoints list -o jsonpath='{range .items[*]}{.url} {.status}{"\n"}{end}'

--template does so with a template of Go. With -o json, an error is an object of JSON, too, on standard error.

An endpoint is named by its ID or its URL.

Exit codes: 0 done, 1 any other failure, 2 wrong usage or a field that breaks a rule, 3 the key was
refused, 6 the server is not trusted.`

const backendsHelp = `Backends are what endpoints of type cloud forward to.

  failover       the first of its backends that is up, in their order
  weighted       one of its backends at random, in proportion to the weights
  tunnel-group   the labelled tunnels that have all its labels (fairlead tunnel --label app=api 8080)
  static         an address that the server connects to
  http-response  a fixed answer, such as a maintenance page

Make the leaves first, then the backends that contain them, then the endpoint. A backend in use cannot
be deleted; the error names its user.`

const backendsExample = `  fairlead api backends tunnel-group create --label app=api
  fairlead api backends http-response create --status-code 503 --body "back soon"
  fairlead api backends failover create --backend bkdtg-06hj… --backend bkdhr-06hj…
  fairlead api endpoints create --url http://shop.demo --backend-id bkdfo-06hj…`

// commandName returns the name of a resource's command, and its name in the API where that differs.
func commandName(r resource.Resource) (name string, aliases []string) {
	last := path.Base(r.Path)
	if name = strings.ReplaceAll(last, "_", "-"); name != last {
		aliases = []string{last}
	}
	return name, aliases
}

// isBackend reports whether a resource is a kind of backends.
func isBackend(r resource.Resource) bool { return strings.HasPrefix(r.Path, resource.BackendPath("")) }

// apiCall has the flags of every command of `fairlead api`.
type apiCall struct {
	console    console
	settings   agentconfig.Flags
	apiKeyFile string
	output
}

func newAPI(c console) *cobra.Command {
	api := &cobra.Command{Use: "api", Short: "Read and change your account at the service", Long: apiHelp,
		Example: `  fairlead api endpoints list --watch
  fairlead api credentials create --description "alice's laptop" --acl 'bind:http://*.demo'
  fairlead api endpoints get http://hello.demo -o yaml
  fairlead api api-keys create --scope exporter --acl 'export:team-a/*' --acl 'bind:http://*.team-a'`}
	backends := &cobra.Command{Use: "backends", Short: "Backends, to which endpoints of type cloud forward",
		Long: backendsHelp, Example: backendsExample}
	api.AddCommand(backends, apiClusters(c), apiEvents(c), apiIdentities(c))
	for _, r := range resource.All() {
		switch r.Path {
		case resource.Clusters, resource.Events, resource.Users: // above
		case resource.AppSessions, resource.ClusterKeys, resource.Description: // have no command
		default:
			if isBackend(r) {
				backends.AddCommand(apiResource(c, r))
			} else {
				api.AddCommand(apiResource(c, r))
			}
		}
	}
	return api
}

// apiResource makes the commands of a resource.
func apiResource(c console, r resource.Resource) *cobra.Command {
	name, aliases := commandName(r)
	group := &cobra.Command{Use: name, Aliases: aliases, Short: "The account's " + r.Noun + "s"}
	group.AddCommand(apiList(c, r), apiGet(c, r))
	if len(r.Fields) > 0 {
		group.AddCommand(apiCreate(c, r), apiUpdate(c, r), apiDelete(c, r))
	}
	for _, op := range r.Operations {
		if op.BodyOptional {
			group.AddCommand(apiAction(c, r, op))
		}
	}
	if r.Path == resource.Operators {
		group.AddCommand(apiBound(c, r))
	}
	return group
}

// command makes a subcommand that calls do with a client. It has one argument, which names an
// object, when use ends in " ID", at most one when in " [ID]", and none otherwise.
func (a *apiCall) command(
	r resource.Resource, use, short string, do func(ctx context.Context, api *apiclient.Client, id string) error,
) *cobra.Command {
	name := "ID"
	if r.Path == resource.Endpoints {
		name = "ID or URL"
	}
	wantsID, mayID := strings.HasSuffix(use, " ID"), strings.HasSuffix(use, " [ID]")
	cmd := &cobra.Command{Use: strings.ReplaceAll(use, "ID", strings.ReplaceAll(name, " or ", "|")), Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case wantsID && len(args) != 1:
				return a.asObject(cli.Usagef("%s needs one argument, the %s of %s, and got %d", cmd.CommandPath(), name,
					article(r.Noun), len(args)))
			case mayID && len(args) > 1:
				return a.asObject(cli.Usagef("%s takes one argument at most, the %s of %s, and got %d",
					cmd.CommandPath(), name, article(r.Noun), len(args)))
			case !wantsID && !mayID:
				return a.asObject(cli.NoArguments(cmd, args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.asObject(a.run(cmd.Context(), r, strings.Join(args, ""), do))
		}}
	if wantsID || mayID {
		cmd.ValidArgsFunction = a.completeObjects(r)
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return a.asObject(flagError(cmd, err)) })
	a.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&a.apiKeyFile, "api-key-file", "", "`FILE` that holds an API key ("+envAPIKey+" holds one too)")
	addSettings(cmd, &a.settings)
	return cmd
}

// run calls do with a client, and the ID of the object that arg names.
func (a *apiCall) run(ctx context.Context, r resource.Resource, arg string,
	do func(ctx context.Context, api *apiclient.Client, id string) error) error {
	if err := a.parseFlags(); err != nil {
		return err
	}
	api, err := accountClient(a.console, a.settings, a.apiKeyFile, "fairlead api")
	if err != nil {
		return err
	}
	if api == nil {
		return cli.Usagef("no API key is given: run `fairlead login`, set %s, or name its file with --api-key-file; "+
			"`fairlead-server api-key create` makes one", envAPIKey)
	}
	defer api.CloseIdleConnections()
	id, err := idOf(ctx, api, r, arg)
	if err == nil {
		err = do(ctx, api, id)
	}
	return a.explain(err)
}

// explain adds the code of the API to an error, or a remedy when the server is not trusted.
func (a *apiCall) explain(err error) error {
	problem := trust.ProblemOf(err)
	var answer *account.Error
	if problem == trust.NoProblem && errors.As(err, &answer) && answer.Status != 0 && answer.Code != "" {
		code := " (" + string(answer.Code) + ")"
		return withMistakes(fmt.Errorf("%w%s", err, code), "the request"+code, "the traffic policy"+code, "",
			answer.Fields)
	}
	if problem == trust.NoProblem {
		return err
	}
	if s, _ := loadSettings(a.settings, a.console); s != nil {
		return withIdentityRemedy(err, s)
	}
	return err
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeioAH") {
		return "an " + noun
	}
	return "a " + noun
}

func apiList(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	var watch bool
	var filter account.EndpointFilter
	cmd := a.command(r, "list", "List "+r.Noun+"s, newest first",
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			if watch && filter.OwnerCluster != "" {
				return &usageErrors{[]error{errors.New("--owner-cluster goes with a list, not with --watch")}}
			}
			if watch {
				if a.isTable() {
					if _, err := fmt.Fprintf(a.console.out, eventRow, "EVENT", "ID", "STATUS", "URL"); err != nil {
						return err
					}
				}
				return a.watch(ctx, &endpointFollower{apiCall: a, api: api, filter: filter})
			}
			return a.printAll(ctx, api, r, apiclient.EndpointQuery(filter))
		})
	if r.Watch != nil {
		cmd.Flags().BoolVar(&watch, "watch", false, "go on with every change, until Ctrl-C")
		addEndpointFilter(cmd, &filter)
		cmd.Flags().StringVar(&filter.URL, "url", "", "only those with this `URL`")
	}
	return cmd
}

func apiGet(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	return a.command(r, "get ID", "Show "+article(r.Noun),
		func(ctx context.Context, api *apiclient.Client, id string) error {
			return a.print(api.Object(ctx, resource.ObjectPath(r.Path, id)))
		})
}

func apiCreate(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	in := fieldFlags{console: c}
	cmd := a.command(r, "create", "Create "+article(r.Noun),
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			fields, err := in.read(r.Fields)
			if err != nil {
				return err
			}
			if r.Secret && a.format == "name" {
				return cli.Usagef("-o name leaves out the secret, which is shown only once; " +
					"-o jsonpath='{.id} {.token}' prints both")
			}
			made, err := api.CreateObject(ctx, r.Path, fields)
			if a.isTable() && r.Secret && err == nil {
				return a.printSecret(r, made)
			}
			return a.print(made, err)
		})
	in.add(cmd, r.Fields, true)
	return cmd
}

func apiUpdate(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	in := fieldFlags{console: c}
	cmd := a.command(r, "update ID", "Change "+article(r.Noun)+"; what is not given stays",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			fields, err := in.read(r.Fields)
			if err != nil {
				return err
			}
			if len(fields) == 0 {
				return cli.Usagef("nothing to change is given; `%s --help` lists the fields", in.cmd.CommandPath())
			}
			return a.print(api.UpdateObject(ctx, resource.ObjectPath(r.Path, id), fields))
		})
	in.add(cmd, r.Fields, false)
	return cmd
}

func apiAction(c console, r resource.Resource, op resource.Operation) *cobra.Command {
	a, verb := &apiCall{console: c}, path.Base(op.Pattern)
	return a.command(r, verb+" ID", op.Summary, func(ctx context.Context, api *apiclient.Client, id string) error {
		if err := api.PostAction(ctx, resource.ObjectPath(r.Path, id)+"/"+verb); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.err, "%s %s: told to %s\n", r.Noun, id, verb)
		return err
	})
}

func apiBound(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	return a.command(r, "bound-endpoints ID", "List the endpoints that the operator's selectors admit",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			bound := resource.At(resource.Endpoints)
			bound.Path = resource.ObjectPath(r.Path, id) + "/bound_endpoints"
			return a.printAll(ctx, api, bound, nil)
		})
}
