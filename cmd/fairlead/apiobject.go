// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

// withoutKind returns the ID in a name that -o name has printed, and any other text as it is.
func withoutKind(name string) string {
	if _, id, found := strings.Cut(name, "/"); found && resource.NameOf(id) == name {
		return id
	}
	return name
}

// idOf returns the ID of the object that an argument names, for an endpoint by its URL, too.
func idOf(ctx context.Context, api *apiclient.Client, r resource.Resource, arg string) (string, error) {
	arg = withoutKind(arg)
	if r.Path != resource.Endpoints || !strings.Contains(arg, "://") {
		return arg, nil
	}
	found, err := api.ListEndpoints(ctx, account.EndpointFilter{URL: arg})
	if err != nil {
		return "", err
	}
	ids := make([]string, len(found.Endpoints))
	for i := range found.Endpoints {
		ids[i] = found.Endpoints[i].ID
	}
	switch len(ids) {
	case 0:
		return "", account.Errorf(account.CodeNotFound, "the account has no endpoint with the URL %s", arg)
	case 1:
		return ids[0], nil
	}
	return "", cli.Usagef("%d endpoints have the URL %s: give the ID of one of %s", len(ids), arg,
		strings.Join(ids, ", "))
}

// completionTimeout limits how long a shell waits for completions.
const completionTimeout = 2 * time.Second

// completeObjects returns a completion of an argument by the IDs of a resource's objects, and by
// the URLs of endpoints. It has what the API answers in time, and reports no error.
func (a *apiCall) completeObjects(r resource.Resource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		api, err := accountClient(a.console, a.settings, a.apiKeyFile, "fairlead completion")
		if err != nil || api == nil || len(args) > 0 {
			return nil, directive
		}
		defer api.CloseIdleConnections()
		_ = api.EachObject(ctx, r.Path, r.List.Field, nil, func(raw json.RawMessage) bool {
			var o struct{ ID, URL string }
			cells, err := row(r, r.Columns, raw)
			if err != nil || json.Unmarshal(raw, &o) != nil {
				return false
			}
			for _, name := range []string{o.URL, o.ID} {
				if name != "" && strings.HasPrefix(name, prefix) {
					others := slices.DeleteFunc(slices.Clone(cells), func(text string) bool { return text == name })
					all = append(all, cobra.CompletionWithDesc(name, strings.Join(others, " ")))
				}
			}
			return true
		})
		return all, directive
	}
}
