// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

// endpointFlags say what to bind.
type endpointFlags struct {
	endpointSpec
}

func (f *endpointFlags) add(cmd *cobra.Command, example string) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "`URL` at which the endpoint is called, e.g. "+example+" (required)")
	flags.StringVar(&f.binding, "binding", account.BindingKubernetes,
		"where the endpoint can be called from: kubernetes (pods of the account's clusters), internal "+
			"(traffic policies of the account, at a URL below .internal), or public (everybody, at a URL below a domain that "+
			"the server grants to the account)")
	cli.CompleteValues(cmd, "binding", account.BindingKubernetes, account.BindingInternal, account.BindingPublic)
	flags.StringVar(&f.name, "name", "", fmt.Sprintf("`NAME` of the endpoint, at most %d bytes", account.MaxName))
	flags.StringVar(&f.description, "description", "",
		fmt.Sprintf("`TEXT` for people, at most %d bytes", account.MaxDescription))
	flags.StringVar(&f.metadata, "metadata", "", fmt.Sprintf("`TEXT` for programs, at most %d bytes", account.MaxMetadata))
	flags.BoolVar(&f.pooling, "pooling-enabled", false,
		"share the URL with every other agent that was started with this flag: each new call "+
			"goes to the agent that serves the fewest. --name, or else an id that each agent keeps in "+
			"its state directory, tells the members of such a pool apart")
	flags.StringVar(&f.policyFile, "traffic-policy-file", "",
		fmt.Sprintf("`FILE` with the endpoint's traffic policy (YAML or JSON, at most %d KiB): who may call, and what "+
			"happens to calls; `fairlead policy check` checks one", account.MaxTrafficPolicy>>10))
	flags.BoolVar(&f.replacePolicy, "replace-pool-policy", false,
		"give all members of the pool this agent's traffic policy; without it a member with another policy is refused")
}

// read reads target and flags. scheme is the command's.
func (f *endpointFlags) read(scheme, target string) (agent.Endpoint, error) {
	f.upstream = target
	if f.url == "" {
		example := map[string]string{"http": "http://hello.demo", "tcp": "tcp://postgres.demo:5432"}[scheme]
		return agent.Endpoint{}, usagef("--url is missing: give the URL at which the endpoint is called, e.g. --url %s",
			example)
	}
	if f.policyFile != "" {
		var err error
		if f.policy, err = agentconfig.ReadPolicyFile(f.policyFile); err != nil {
			return agent.Endpoint{}, usagef("--traffic-policy-file: %v", err)
		}
	}
	u, err := account.ParseBindingURL(f.binding, f.url)
	if command := commandOf(u.Scheme); err == nil && command != scheme {
		return agent.Endpoint{},
			usagef("--url %q: `fairlead %s` serves %s endpoints; use `fairlead %s`, or a URL that begins with %s://", f.url,
				scheme, scheme, command, scheme)
	}
	e, wrong := f.check()
	return e, wrong.asUsage()
}
