// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

const apiHelp = `Read and change your account at the service, over its API.

The API key comes from FAIRLEAD_API_KEY or from the file of --api-key-file. The server and its
authority come from the same settings as an agent's.

Exit codes: 0 done, 1 any other failure, 2 wrong usage or a field that breaks a rule, 3 the key was
refused, 6 the server is not trusted.`

// resource is a resource of the API, as the commands show it.
type resource struct {
	group            string // the command above, "" for none
	name, path, list string // the command, the path of the API, and the field of a list
	noun             string // for sentences
	columns          []column
	fields           []field // fields of create and update; empty where there is neither
	watch            bool
	secret           bool     // a creation answers with a secret
	actions          []string // subcommands that POST to ID/action
}

// aliases returns the name in the API where it differs from the command's.
func (r resource) aliases() []string {
	if name := r.path[strings.LastIndexByte(r.path, '/')+1:]; name != r.name {
		return []string{name}
	}
	return nil
}

// command returns the words after `fairlead api`.
func (r resource) command() string { return strings.TrimSpace(r.group + " " + r.name) }

// column is a column of a table: the heading, and the field of the object, dotted when nested.
type column struct{ heading, field string }

func resources() []resource {
	text := func(name, help string) field {
		return field{flag: strings.ReplaceAll(name, "_", "-"), path: name, kind: kindText, help: help}
	}
	common := []field{text("description", "`TEXT` for people"), text("metadata", "`TEXT` for programs")}
	expires := field{flag: "expires", path: "expires_at", kind: kindExpiry,
		help: "`WHEN` it ends: a duration (720h), a time (2027-01-31T00:00:00Z), or never"}
	created := column{"CREATED", "created_at"}
	dates := []column{created, {"EXPIRES", "expires_at"}, {"LAST USED", "last_used_at"}, {"DESCRIPTION", "description"}}
	return append([]resource{
		{name: "endpoints", path: "/endpoints", list: "endpoints", noun: "endpoint", watch: true,
			fields: endpointFields(common),
			columns: []column{{"ID", "id"}, {"STATUS", "status"}, {"TYPE", "type"}, {"BINDING", "bindings"},
				{"URL", "url"},
				{"NAME", "name"}, {"UPSTREAM", "upstream_url"}, {"BACKEND", "backend_id"},
				{"OWNER", "owner"}, created}},
		{name: "kubernetes-operators", path: "/kubernetes_operators", list: "operators", noun: "operator",
			columns: []column{{"ID", "id"}, {"NAMESPACE", "deployment.namespace"}, {"NAME", "deployment.name"},
				{"CLUSTER", "deployment.cluster_name"},
				{"VERSION", "deployment.version"}, {"LAST SEEN", "last_seen_at"}, {"DESCRIPTION", "description"}},
			fields: append(common, text("region", "`TEXT`: the place where it runs"),
				field{flag: "cluster-uid", path: "cluster_uid", kind: kindText, create: true,
					help: "`UID` of the cluster; with it, create registers again"},
				field{flag: "feature", path: "enabled_features", kind: kindList,
					help: "`FEATURE`: bindings, ingress or gateway; may be repeated"},
				field{flag: "deployment-name", path: "deployment.name", kind: kindText, help: "`NAME` of the release"},
				field{flag: "deployment-namespace", path: "deployment.namespace", kind: kindText,
					help: "`NAMESPACE` of the release"},
				field{flag: "deployment-version", path: "deployment.version", kind: kindText,
					help: "`VERSION` of the operator"},
				field{flag: "cluster-name", path: "deployment.cluster_name", kind: kindText,
					help: "`NAME` of the cluster"},
				field{flag: "endpoint-selector", path: "binding.endpoint_selectors", kind: kindList,
					help: "CEL `EXPRESSION` over ep; may be repeated"},
				field{flag: "ingress-endpoint", path: "binding.ingress_endpoint", kind: kindText,
					help: "`TEXT` that is kept for other clients of the API; forwarders do without"})},
		{name: "tunnel-sessions", path: "/tunnel_sessions", list: "tunnel_sessions", noun: "tunnel session",
			actions: []string{"stop", "restart"},
			columns: []column{{"ID", "id"}, {"IP", "ip"}, {"OS", "os"}, {"AGENT", "agent_version"},
				{"CREDENTIAL", "credential.id"}, {"STARTED", "started_at"}}},
		{name: "api-keys", path: "/api_keys", list: "keys", noun: "API key", secret: true,
			columns: append([]column{{"ID", "id"}, {"SCOPES", "scopes"}, {"RULES", "acl"}, {"CLUSTER", "cluster_uid"}},
				dates...),
			fields: append(append(common, apiKeyFields()...), expires)},
		{name: "credentials", path: "/credentials", list: "credentials", noun: "authtoken", secret: true,
			columns: append([]column{{"ID", "id"}, {"RULES", "acl"}}, dates...),
			fields: append(common, field{flag: "acl", path: "acl", kind: kindList,
				help: "`RULE`: bind:<url pattern>, bind:<label>=<value> or connect:<operator id pattern>; may be " +
					"repeated"},
				expires)},
		{name: "tunnels", path: "/tunnels", list: "tunnels", noun: "labelled tunnel",
			columns: []column{{"ID", "id"}, {"LABELS", "labels"}, {"UPSTREAM", "forwards_to"},
				{"SESSION", "tunnel_session.id"},
				{"STARTED", "started_at"}}},
	}, backendResources(common)...)
}

// apiKeyFields are the fields of API keys that other credentials do not have, or have otherwise.
func apiKeyFields() []field {
	return []field{
		{flag: "scope", path: "scopes", kind: kindList,
			help: "`SCOPE`: admin, read, operator, identities or exporter; may be repeated"},
		{flag: "acl", path: "acl", kind: kindList,
			help: "`RULE` of a key with the scope exporter: export:<namespace>/<name>, bind:<url pattern>, " +
				"backend:<id> or internal:<host>; may be repeated"},
		{flag: "cluster-uid", path: "cluster_uid", kind: kindText,
			help: "`UID` of the namespace kube-system of the cluster that such a key belongs to; default the first " +
				"that presents it"},
	}
}

// apiCall has the flags of every command of `fairlead api`.
type apiCall struct {
	console    console
	settings   agentconfig.Flags
	apiKeyFile string
	output     string
}

func newAPI(c console) *cobra.Command {
	api := &cobra.Command{Use: "api", Short: "Read and change your account at the service", Long: apiHelp,
		Example: `  fairlead api endpoints list --watch
  fairlead api credentials create --description "alice's laptop" --acl 'bind:http://*.demo'
  fairlead api api-keys list -o yaml
  fairlead api api-keys create --scope exporter --acl 'export:team-a/*' --acl 'bind:http://*.team-a'`}
	backends := &cobra.Command{Use: "backends", Short: "Backends, to which endpoints of type cloud forward",
		Long: backendsHelp, Example: backendsExample}
	api.AddCommand(backends, apiClusters(c), apiEvents(c), apiIdentities(c))
	for _, r := range resources() {
		group := &cobra.Command{Use: r.name, Aliases: r.aliases(), Short: "The account's " + r.noun + "s"}
		group.AddCommand(apiList(c, r), apiGet(c, r))
		if len(r.fields) > 0 {
			group.AddCommand(apiCreate(c, r), apiUpdate(c, r), apiDelete(c, r))
		}
		for _, verb := range r.actions {
			group.AddCommand(apiAction(c, r, verb))
		}
		if r.name == "kubernetes-operators" {
			group.AddCommand(apiBound(c, r))
		}
		if r.group == "" {
			api.AddCommand(group)
		} else {
			backends.AddCommand(group)
		}
	}
	return api
}

// command makes a subcommand that calls do with a client. It has one argument, the ID, when use
// ends in " ID", and none otherwise.
func (a *apiCall) command(
	r resource, use, short string, do func(ctx context.Context, api *apiclient.Client, id string) error,
) *cobra.Command {
	wantsID := strings.HasSuffix(use, " ID")
	cmd := &cobra.Command{Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case wantsID && len(args) != 1:
				return cli.Usagef("%s needs one argument, the ID of %s, and got %d", cmd.CommandPath(), article(r.noun),
					len(args))
			case !wantsID:
				return cli.NoArguments(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.output != "table" && a.output != "json" && a.output != "yaml" {
				return cli.Usagef("--output %q: must be table, json or yaml", a.output)
			}
			api, err := accountClient(a.console, a.settings, a.apiKeyFile, "fairlead api")
			if err != nil {
				return err
			}
			if api == nil {
				return cli.Usagef(
					"no API key is given: set %s, or name its file with --api-key-file; `fairlead-server api-key "+
						"create` makes one",
					envAPIKey)
			}
			defer api.CloseIdleConnections()
			return a.explain(do(cmd.Context(), api, strings.Join(args, "")))
		}}
	flags := cmd.Flags()
	flags.StringVarP(&a.output, "output", "o", "table", "`FORMAT` of the answer: table, json or yaml")
	cli.CompleteValues(cmd, "output", "table", "json", "yaml")
	flags.StringVar(&a.apiKeyFile, "api-key-file", "", "`FILE` that holds an API key ("+envAPIKey+" holds one too)")
	addSettings(cmd, &a.settings)
	return cmd
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
	s, loading := loadSettings(a.settings, a.console)
	if loading != nil {
		return err
	}
	if remedy := identityRemedy(problem, s); remedy != "" {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

func (r resource) objectPath(id string) string { return r.path + "/" + url.PathEscape(id) }

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeioAH") {
		return "an " + noun
	}
	return "a " + noun
}

func apiList(c console, r resource) *cobra.Command {
	a := &apiCall{console: c}
	var watch bool
	var filter account.EndpointFilter
	cmd := a.command(r, "list", "List "+r.noun+"s, newest first",
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			if watch && filter.OwnerCluster != "" {
				return &usageErrors{[]error{errors.New("--owner-cluster goes with a list, not with --watch")}}
			}
			if watch {
				if a.output == "table" {
					if _, err := fmt.Fprintf(a.console.out, eventRow, "EVENT", "ID", "STATUS", "URL"); err != nil {
						return err
					}
				}
				return a.watch(ctx, &endpointFollower{apiCall: a, api: api, filter: filter})
			}
			return a.printAll(ctx, api, r, apiclient.EndpointQuery(filter))
		})
	if r.watch {
		cmd.Flags().BoolVar(&watch, "watch", false, "go on with every change, until Ctrl-C")
		cmd.Flags().StringSliceVar(&filter.Bindings, "binding", nil,
			"only those with this `BINDING`: kubernetes, internal, public or clusterset")
		cmd.Flags().StringVar(&filter.Type, "type", "", "only those of this `TYPE`: agent or cloud")
		cmd.Flags().StringVar(&filter.URL, "url", "", "only those with this `URL`")
		cmd.Flags().StringVar(&filter.OwnerCluster, "owner-cluster", "",
			"only those of objects in the cluster with this `UID` (of its namespace kube-system)")
	}
	return cmd
}

func apiGet(c console, r resource) *cobra.Command {
	a := &apiCall{console: c}
	return a.command(r, "get ID", "Show "+article(r.noun),
		func(ctx context.Context, api *apiclient.Client, id string) error {
			return a.print(api.Object(ctx, r.objectPath(id)))
		})
}

func apiCreate(c console, r resource) *cobra.Command {
	a := &apiCall{console: c}
	in := fieldFlags{console: c}
	cmd := a.command(r, "create", "Create "+article(r.noun),
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			fields, err := in.read(r.fields)
			if err != nil {
				return err
			}
			made, err := api.CreateObject(ctx, r.path, fields)
			if a.output == "table" && r.secret && err == nil {
				return a.printSecret(r, made)
			}
			return a.print(made, err)
		})
	in.add(cmd, r.fields, true)
	return cmd
}

func apiUpdate(c console, r resource) *cobra.Command {
	a := &apiCall{console: c}
	in := fieldFlags{console: c}
	cmd := a.command(r, "update ID", "Change "+article(r.noun)+"; what is not given stays",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			fields, err := in.read(r.fields)
			if err != nil {
				return err
			}
			if len(fields) == 0 {
				return cli.Usagef("nothing to change is given; `fairlead api %s update --help` lists the fields",
					r.command())
			}
			return a.print(api.UpdateObject(ctx, r.objectPath(id), fields))
		})
	in.add(cmd, r.fields, false)
	return cmd
}

func apiDelete(c console, r resource) *cobra.Command {
	a := &apiCall{console: c}
	return a.command(r, "delete ID", "Delete "+article(r.noun)+r.afterDelete(),
		func(ctx context.Context, api *apiclient.Client, id string) error {
			if err := api.DeleteObject(ctx, r.objectPath(id)); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.err, "%s %s deleted\n", r.noun, id)
			return err
		})
}

// afterDelete returns the effect or the condition of a deletion, for its help.
func (r resource) afterDelete() string {
	if r.group != "" {
		return " that nothing uses"
	}
	return "; its open requests and connections end within a second"
}

func apiAction(c console, r resource, verb string) *cobra.Command {
	a := &apiCall{console: c}
	short := map[string]string{"stop": "End a session; its agent exits",
		"restart": "End a session; its agent connects again"}[verb]
	return a.command(r, verb+" ID", short, func(ctx context.Context, api *apiclient.Client, id string) error {
		if err := api.PostAction(ctx, r.objectPath(id)+"/"+verb); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.err, "%s %s: told to %s\n", r.noun, id, verb)
		return err
	})
}

func apiBound(c console, r resource) *cobra.Command {
	a := &apiCall{console: c}
	return a.command(r, "bound-endpoints ID", "List the endpoints that the operator's selectors admit",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			bound := resources()[0]
			bound.path = r.objectPath(id) + "/bound_endpoints"
			return a.printAll(ctx, api, bound, nil)
		})
}
