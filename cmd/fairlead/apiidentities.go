// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const identitiesHelp = `The people who logged in at endpoints whose traffic policy requires a login, and their sessions.

These commands need an API key with the scope identities, which allows nothing else. A revocation is
complete when the command returns: the next request asks for a login, open connections are cut, and
the identity provider is told to ask the person again. GitHub has no way to be told: a browser that is
signed in there gets in again.`

// accessed has the columns of the endpoints that an identity has called.
func accessed() resource.Resource {
	return resource.Resource{Noun: "endpoint", Columns: []resource.Column{{Heading: "URL", Field: "url"},
		{Heading: "LAST", Field: "last_accessed"}}, Wide: []resource.Column{{Heading: "FIRST", Field: "first_accessed"},
		{Heading: "ENDPOINT", Field: "endpoint.id"}}}
}

// apiIdentities makes the commands of identities and their sessions.
func apiIdentities(c console) *cobra.Command {
	group := &cobra.Command{Use: "identities", Aliases: []string{"identity"},
		Short: "List and revoke the identities that logged in at endpoints", Long: identitiesHelp,
		Example: `  fairlead api identities list --search alice
  fairlead api identities sessions au-06hj…
  fairlead api identities revoke au-06hj…`}
	group.AddCommand(apiListIdentities(c), apiGetIdentity(c), apiListAppSessions(c), apiAccessed(c), apiRevoke(c))
	return group
}

// searchFlags filter a list of identities or sessions.
type searchFlags struct{ text, provider string }

func (f *searchFlags) add(cmd *cobra.Command, of string) {
	cmd.Flags().StringVar(&f.text, "search", "", "only those with each word of `TEXT` in "+of)
	cmd.Flags().StringVar(&f.provider, "provider", "",
		"only those whose identity provider has this `TEXT` in its name, in any case")
}

func (f *searchFlags) query() (url.Values, error) {
	if err := (account.UserFilter{Query: f.text, Provider: f.provider}).Validate(); err != nil {
		return nil, cli.Usagef("--search or --provider: %v", err)
	}
	return apiclient.Query(map[string]string{"q": f.text, "provider": f.provider}), nil
}

func apiListIdentities(c console) *cobra.Command {
	a, r, search := &apiCall{console: c}, resource.At(resource.Users), searchFlags{}
	cmd := a.command(r, "list", "List the identities that logged in, newest first",
		func(ctx context.Context, api *apiclient.Client, _ string) error {
			query, err := search.query()
			if err != nil {
				return err
			}
			return a.printAll(ctx, api, r, query)
		})
	search.add(cmd, "user name, e-mail address, name, provider or an id")
	return cmd
}

func apiGetIdentity(c console) *cobra.Command {
	a, r := &apiCall{console: c}, resource.At(resource.Users)
	return a.command(r, "get ID", "Show an identity, or one of its sessions",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			if strings.HasPrefix(id, account.PrefixAppSession+"-") {
				return a.print(api.Object(ctx, resource.ObjectPath(resource.AppSessions, id)))
			}
			return a.print(api.Object(ctx, resource.ObjectPath(r.Path, id)))
		})
}

func apiListAppSessions(c console) *cobra.Command {
	a, r, search := &apiCall{console: c}, resource.At(resource.AppSessions), searchFlags{}
	cmd := a.command(resource.At(resource.Users), "sessions [ID]", "List the live sessions, newest first",
		func(ctx context.Context, api *apiclient.Client, userID string) error {
			query, err := search.query()
			if err != nil {
				return err
			}
			if strings.HasPrefix(userID, account.PrefixAppSession+"-") {
				return cli.Usagef("%s is a session: `fairlead api identities get %[1]s` shows it",
					screen.Escape(userID))
			}
			if userID != "" {
				query.Set("user_id", userID)
			}
			all, err := api.ListObjects(ctx, r.Path, r.List.Field, query)
			if err == nil && len(all) == 0 && userID != "" { // no sessions, or an unknown identity
				_, err = api.User(ctx, userID)
			}
			if err != nil {
				return err
			}
			return a.printList(r, all)
		})
	search.add(cmd, "the URL, the IP address, or the identity's user name, e-mail address, name or id")
	return cmd
}

func apiAccessed(c console) *cobra.Command {
	a, r := &apiCall{console: c}, resource.At(resource.Users)
	return a.command(r, "endpoints ID", "List the endpoints that an identity has called",
		func(ctx context.Context, api *apiclient.Client, id string) error {
			found, err := api.Object(ctx, resource.ObjectPath(r.Path, id)+"/endpoints")
			if err != nil {
				return err
			}
			var list struct {
				Endpoints []json.RawMessage `json:"endpoints"`
			}
			if err := json.Unmarshal(found, &list); err != nil {
				return fmt.Errorf("reading the answer: %w", err)
			}
			return a.printList(accessed(), list.Endpoints)
		})
}

func apiRevoke(c console) *cobra.Command {
	a := &apiCall{console: c}
	var sessionID string
	var sessionsOnly, yes bool
	cmd := a.command(resource.At(resource.Users), "revoke [ID]", "Revoke an identity, or end one of its sessions",
		func(ctx context.Context, api *apiclient.Client, userID string) error {
			sessionID = withoutKind(sessionID)
			switch {
			case (userID == "") == (sessionID == ""):
				return cli.Usagef(
					"revoking needs the ID of an identity, or --session with that of a session, and not both")
			case sessionsOnly && sessionID != "":
				return cli.Usagef("--session ends one session, --sessions-only all of an identity: give one of them")
			case strings.HasPrefix(userID, account.PrefixAppSession+"-"):
				return cli.Usagef("%s is a session: give it as --session %[1]s", screen.Escape(userID))
			case !yes && !c.asks:
				return cli.Usagef("revoking asks for a confirmation, and there is no terminal to ask at: give --yes")
			case !yes:
				if err := c.confirmRevoking(ctx, api, userID, sessionID, sessionsOnly); err != nil {
					return err
				}
			}
			what, path, id := "identity", resource.ObjectPath(resource.Users, userID), userID
			switch {
			case sessionID != "":
				what, path, id = "session", resource.ObjectPath(resource.AppSessions, sessionID), sessionID
			case sessionsOnly:
				what, path = "sessions of identity", path+"/sessions"
			}
			if err := api.DeleteObject(ctx, path); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.err, "%s %s revoked\n", what, screen.Escape(id))
			return err
		})
	cmd.Flags().StringVar(&sessionID, "session", "", "end the session with this `ID`, and leave the identity's others")
	cmd.Flags().BoolVar(&sessionsOnly, "sessions-only", false, "end all sessions, and keep the identity")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for a confirmation")
	return cmd
}

// confirmRevoking shows what is about to be revoked and asks for a "yes".
func (c console) confirmRevoking(ctx context.Context, api *apiclient.Client, userID, sessionID string,
	sessionsOnly bool) error {
	var question string
	if sessionID != "" {
		session, err := api.AppSession(ctx, sessionID)
		if err != nil {
			return err
		}
		userID = session.User.ID
		question = fmt.Sprintf("End the session at %s of %%s? What it has open is cut.",
			screen.Escape(session.PublicURL))
	} else {
		sessions, err := api.ListObjects(ctx, resource.AppSessions,
			resource.At(resource.AppSessions).List.Field, url.Values{"user_id": {userID}})
		if err != nil {
			return err
		}
		verb := "Revoke"
		if sessionsOnly {
			verb = "Sign out"
		}
		question = fmt.Sprintf(verb+" %%s? %s at once, and what they have open is cut.",
			map[bool]string{true: "Their one session ends", false: fmt.Sprintf("Their %d sessions end",
				len(sessions))}[len(sessions) == 1])
	}
	user, err := api.User(ctx, userID)
	if err != nil {
		return err
	}
	if c.confirm(ctx, fmt.Sprintf(question, nameOf(user))) {
		return nil
	}
	return errors.New("nothing was revoked")
}

// nameOf returns a name for the user, the provider and the id.
func nameOf(u *account.User) string {
	name := cmp.Or(u.Username, u.Email, u.Name, u.ProviderUserID)
	if u.Email != "" && u.Email != name {
		name += " <" + u.Email + ">"
	}
	return screen.Escape(fmt.Sprintf("%s (%s, %s)", name, u.Provider.Name, u.ID))
}
