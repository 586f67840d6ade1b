// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

func apiDelete(c console, r resource.Resource) *cobra.Command {
	if r.Path == resource.Endpoints {
		return apiDeleteEndpoints(c, r)
	}
	a := &apiCall{console: c}
	return a.command(r, "delete ID", "Delete "+article(r.Noun)+afterDelete(r),
		func(ctx context.Context, api *apiclient.Client, id string) error { return a.delete(ctx, api, r, id) })
}

func (a *apiCall) delete(ctx context.Context, api *apiclient.Client, r resource.Resource, id string) error {
	if err := api.DeleteObject(ctx, resource.ObjectPath(r.Path, id)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.console.err, "%s %s deleted\n", r.Noun, id)
	return err
}

// afterDelete returns the effect or the condition of a deletion, for its help.
func afterDelete(r resource.Resource) string {
	if isBackend(r) {
		return " that nothing uses"
	}
	return "; its open requests and connections end within a second"
}

func apiDeleteEndpoints(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	var filter account.EndpointFilter
	var yes bool
	cmd := a.command(r, "delete [ID]", "Delete an endpoint, or those of a cluster"+afterDelete(r),
		func(ctx context.Context, api *apiclient.Client, id string) error {
			if id != "" {
				return a.delete(ctx, api, r, id)
			}
			return a.deleteAll(ctx, api, r, filter, yes)
		})
	atMostOne := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := atMostOne(cmd, args)
		switch {
		case err != nil:
		case (len(args) == 0) == (filter.OwnerCluster == ""):
			err = cli.Usagef("deleting needs the ID or URL of an endpoint, or --owner-cluster, and not both")
		case len(args) > 0 && (len(filter.Bindings) > 0 || filter.Type != ""):
			err = cli.Usagef("--binding and --type go with --owner-cluster")
		case len(args) == 0 && !yes && !c.asks:
			err = cli.Usagef("deleting the endpoints of a cluster asks for a confirmation, and there is no terminal " +
				"to ask at: give --yes")
		}
		return a.asObject(err)
	}
	cmd.Long = "Delete an endpoint, or, with --owner-cluster, those of objects in a cluster that is gone for good. " +
		"They are listed first. What a running exporter of the cluster holds is not deleted."
	cmd.Example = `  fairlead api endpoints delete http://hello.demo
  fairlead api endpoints delete --binding clusterset --owner-cluster 2f6cb1d5-…`
	addEndpointFilter(cmd, &filter)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for a confirmation")
	return cmd
}

// addEndpointFilter adds the flags that select endpoints, for a list and for a deletion.
func addEndpointFilter(cmd *cobra.Command, filter *account.EndpointFilter) {
	cmd.Flags().StringSliceVar(&filter.Bindings, "binding", nil,
		"only those with this `BINDING`: kubernetes, internal, public or clusterset")
	cmd.Flags().StringVar(&filter.Type, "type", "", "only those of this `TYPE`: agent or cloud")
	cli.CompleteValues(cmd, "binding", resource.Bindings()...)
	cli.CompleteValues(cmd, "type", account.TypeAgent, account.TypeCloud)
	cmd.Flags().StringVar(&filter.OwnerCluster, "owner-cluster", "",
		"only those of objects in the cluster with this `UID` (of its namespace kube-system)")
}

// deletePause keeps a mass deletion below 50 requests a second.
const deletePause = 20 * time.Millisecond

// deleteAll lists the endpoints that the filter selects, asks unless yes is set, and deletes them.
// It goes on after an endpoint that cannot be deleted.
func (a *apiCall) deleteAll(
	ctx context.Context, api *apiclient.Client, r resource.Resource, filter account.EndpointFilter, yes bool,
) error {
	all, err := api.ListObjects(ctx, r.Path, r.List.Field, apiclient.EndpointQuery(filter))
	if err != nil {
		return err
	}
	if err := a.printList(r, all); err != nil {
		return err
	}
	question := fmt.Sprintf("Delete all of these (%d)? What they have open is cut.", len(all))
	if len(all) > 0 && !yes && !a.console.confirm(ctx, question) {
		return errors.New("nothing was deleted")
	}
	deleted := 0
	for _, raw := range all {
		var e struct{ ID, URL string }
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		err := api.DeleteEndpoint(ctx, e.ID)
		if err == nil || account.CodeOf(err) == account.CodeNotFound {
			deleted++
		} else if _, err := fmt.Fprintf(a.console.err, "%s (%s) is not deleted: %s\n", screen.Escape(e.URL),
			screen.Escape(e.ID), screen.Escape(err.Error())); err != nil {
			return err
		}
		if !timer.Sleep(ctx, deletePause) {
			break
		}
	}
	result := fmt.Sprintf("%d of %d endpoints deleted", deleted, len(all))
	if deleted < len(all) {
		return errors.New(result)
	}
	_, err = fmt.Fprintln(a.console.err, result)
	return err
}

// confirm asks and reports whether the answer is "yes".
func (c console) confirm(ctx context.Context, question string) bool {
	answered := make(chan string, 1)
	go func() { // reading from a terminal cannot be cancelled; Ctrl-C ends the command anyway
		text, err := c.ask(question + ` Type "yes": `)
		if err != nil {
			text = ""
		}
		answered <- text
	}()
	select {
	case text := <-answered:
		return strings.EqualFold(strings.TrimSpace(text), "yes")
	case <-ctx.Done():
		return false
	}
}
