// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

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
