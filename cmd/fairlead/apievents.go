// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

// watchBacklog is how many of the newest events a watch begins with.
const watchBacklog = 20

// apiEvents makes the commands of events, which are read-only.
func apiEvents(c console) *cobra.Command {
	r := resource.At(resource.Events)
	group := &cobra.Command{Use: "events", Short: "What people, agents and operators did in the account",
		Example: "  fairlead api events list --watch\n  fairlead api events list --type api_key.created"}
	group.AddCommand(apiListEvents(c, r), apiGet(c, r))
	return group
}

func apiListEvents(c console, r resource.Resource) *cobra.Command {
	a := &apiCall{console: c}
	var watch bool
	var what, object string
	var limit int
	cmd := a.command(r, "list", "List events, newest first",
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			filter := account.AuditFilter{Type: account.AuditType(what), ObjectID: object}
			if what != "" && !slices.Contains(account.AuditTypes(), filter.Type) {
				return cli.Usagef("--type %q: must be one of %s", what, auditTypes())
			}
			if watch {
				return a.watch(ctx, &eventFollower{apiCall: a, api: api, filter: filter, of: r})
			}
			if limit < 1 || limit > account.MaxPageLimit {
				return cli.Usagef("--limit %d: must be a number from 1 to %d", limit, account.MaxPageLimit)
			}
			newest, err := api.NewestAuditEvents(ctx, filter, limit)
			if err != nil {
				return err
			}
			return a.printList(r, newest.Events)
		})
	cmd.Flags().BoolVar(&watch, "watch", false,
		fmt.Sprintf("begin with the %d newest, oldest first, and go on with every new one, until Ctrl-C", watchBacklog))
	cmd.Flags().IntVar(&limit, "limit", account.DefaultPageLimit,
		fmt.Sprintf("how many of the newest are shown, at most %d", account.MaxPageLimit))
	cmd.Flags().StringVar(&what, "type", "", "only those of this `TYPE`: "+auditTypes())
	cli.CompleteValues(cmd, "type", strings.Split(auditTypes(), ", ")...)
	cmd.Flags().StringVar(&object, "object-id", "", "only those about the object with this `ID`")
	return cmd
}

func auditTypes() string {
	var all []string
	for _, t := range account.AuditTypes() {
		all = append(all, string(t))
	}
	return strings.Join(all, ", ")
}

// eventFollower follows the events of the account.
type eventFollower struct {
	*apiCall
	api    *apiclient.Client
	filter account.AuditFilter
	of     resource.Resource
	at     account.ResourceVersion
}

func (f *eventFollower) list(ctx context.Context) error {
	newest, err := f.api.NewestAuditEvents(ctx, f.filter, watchBacklog)
	if err != nil {
		return err
	}
	f.at = newest.Version
	for _, raw := range slices.Backward(newest.Events) {
		if err := f.show(raw); err != nil {
			return err
		}
	}
	return nil
}

func (f *eventFollower) follow(ctx context.Context, up func()) error {
	w, err := f.api.WatchAuditEvents(ctx, f.filter, f.at)
	if err != nil {
		return err
	}
	up()
	return forEach(w, func(line account.AuditWatchEvent) error {
		f.at = line.ResourceVersion
		if line.Type == account.Bookmark {
			return nil
		}
		raw, err := json.Marshal(line.Event)
		if err != nil {
			return fmt.Errorf("encoding an event: %w", err)
		}
		return f.show(raw)
	})
}

// show prints one event: as a row of its columns, or completely as JSON or YAML.
func (f *eventFollower) show(raw json.RawMessage) error {
	if !f.isTable() {
		return f.printLine(raw)
	}
	cells, err := row(f.of, f.columns(f.of), raw)
	if err != nil {
		return err
	}
	for i, width := range []int{20, 27, 30, 29}[:len(cells)-1] {
		cells[i] = fmt.Sprintf("%-*s", width, cells[i])
	}
	_, err = fmt.Fprintln(f.console.out, strings.Join(cells, "  "))
	return err
}
