// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// announceTime is how old a next authority must be to be promoted: clients that are not connected all
// the time have connected by then, and learnt it.
const announceTime = 24 * time.Hour

// authorityJSON is an authority as `ca show` prints it.
type authorityJSON struct {
	State     string    `json:"state"` // current, next or retiring
	SHA256    string    `json:"sha256"`
	MadeAt    time.Time `json:"made_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Untold is how many sessions have clients that do not know the next authority; nil for the others,
	// and while a server has not announced it.
	Untold *int `json:"sessions_untold,omitempty"`
}

func (a authorityJSON) row() []string {
	untold := "-"
	switch {
	case a.Untold != nil:
		untold = strconv.Itoa(*a.Untold)
	case a.State == "next":
		untold = "unknown"
	}
	return []string{a.State, date(a.MadeAt), date(a.ExpiresAt), untold, a.SHA256}
}

func newCAShow(c console, at *dataLocation) *cobra.Command {
	return newList(c, at, listCommand{
		use: "show", args: arguments(), example: "  fairlead-server ca show",
		short:   "Show the service's own authorities: the one in service, the next one, and the one before",
		heading: []string{"STATE", "MADE (UTC)", "EXPIRES", "SESSIONS UNTOLD", "CA-SHA256"},
	}, func(ctx context.Context, st *store.Store, _ []string) ([]authorityJSON, error) {
		all, err := readAuthorities(ctx, at)
		if err != nil {
			return nil, err
		}
		reports, err := st.AuthorityReports(ctx)
		if err != nil {
			return nil, err
		}
		shown := []authorityJSON{}
		for _, one := range []struct {
			state string
			ca    *x509.Certificate
		}{{"current", all.Current}, {"next", all.Next}, {"retiring", all.Retiring}} {
			if one.ca == nil {
				continue
			}
			a := authorityJSON{State: one.state, SHA256: trust.Fingerprint(one.ca), MadeAt: pki.MadeAt(one.ca).UTC(),
				ExpiresAt: one.ca.NotAfter.UTC()}
			if one.state == "next" {
				a.Untold = countUntold(reports, a.SHA256)
			}
			shown = append(shown, a)
		}
		return shown, nil
	})
}

// countUntold returns how many sessions do not know the next authority; nil when a server has not
// announced it.
func countUntold(reports []store.AuthorityReport, next string) *int {
	n := 0
	for _, r := range reports {
		if r.Next != next {
			return nil
		}
		n += r.Untold
	}
	return &n
}

// withRotation calls do with the rotation of the server's authority, and its store.
func withRotation(
	ctx context.Context, at *dataLocation, key *seal.Key, do func(pki.Rotation, *store.Store) error,
) error {
	databaseURL, err := at.databaseURL()
	if err != nil {
		return err
	}
	return explainNoAuthority(at, withKeyedStore(ctx, at, key, func(st *store.Store) error {
		if databaseURL != "" {
			return do(pki.NewRotation(at.dataDir, st), st)
		}
		return do(pki.NewRotation(at.dataDir, nil), st)
	}))
}

func newCANext(c console, at *dataLocation) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "next",
		Short: "Make the next authority, and tell agents and forwarders of it",
		Long: `Make the next authority. Within seconds the running service tells agents, forwarders and exporters
of it, who trust both from then on. Give other clients both certificates: ` + "`fairlead-server ca`" + `.`,
		Example: `  fairlead-server ca next
  fairlead-server ca next --database-url-file /etc/fairlead/db-url --secret-key-file /etc/fairlead/secret-key`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			databaseURL, err := at.databaseURL()
			if err != nil {
				return err
			}
			var key *seal.Key
			if databaseURL != "" {
				if keyFile == "" {
					return account.Invalid("--secret-key-file", "",
						"is required with PostgreSQL: name the server's, which seals the authority's key")
				}
				if key, err = seal.Read(keyFile); err != nil {
					return err
				}
			}
			return withRotation(cmd.Context(), at, key, func(r pki.Rotation, st *store.Store) error {
				return addNext(cmd.Context(), c, r, st, key)
			})
		},
	}
	cmd.Flags().StringVar(&keyFile, "secret-key-file", "",
		"`FILE` with the server's secret key, for PostgreSQL")
	return cmd
}

func addNext(ctx context.Context, c console, r pki.Rotation, st *store.Store, key *seal.Key) error {
	if key != nil {
		if err := st.CheckKey(ctx); err != nil {
			return err
		}
	}
	err := r.AddNext(ctx, time.Now())
	switch {
	case errors.Is(err, pki.ErrHasNext):
		return fmt.Errorf("%w: `fairlead-server ca show` shows it, and `fairlead-server ca promote` puts it into "+
			"service", err)
	case errors.Is(err, pki.ErrHasRetiring):
		return fmt.Errorf("%w: `fairlead-server ca retire` ends that, then make the next one", err)
	case err != nil:
		return err
	}
	all, err := r.Read(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "made the next authority %s\nAgents and forwarders that are connected learn it within "+
		"seconds. Give `fairlead-server ca` to the other clients, and promote it from %s UTC on.\n",
		trust.Fingerprint(all.Next), date(pki.MadeAt(all.Next).Add(announceTime)))
	return err
}

func newCAPromote(c console, at *dataLocation) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "promote",
		Short: "Put the next authority into service",
		Long: `Put the next authority into service: within seconds the server presents a certificate of it, and
connections stay. Refused until it is a day old, and while a session's client was not told of it.`,
		Example: "  fairlead-server ca promote\n  fairlead-server ca promote --force    # the key has leaked",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withRotation(cmd.Context(), at, nil, func(r pki.Rotation, st *store.Store) error {
				return promote(cmd.Context(), c, r, st, force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "although clients are cut off")
	return cmd
}

func promote(ctx context.Context, c console, r pki.Rotation, st *store.Store, force bool) error {
	all, err := r.Read(ctx)
	if err != nil {
		return err
	}
	if all.Next == nil {
		return fmt.Errorf("%w: make one with `fairlead-server ca next`", pki.ErrNoNext)
	}
	reports, err := st.AuthorityReports(ctx)
	if err != nil {
		return err
	}
	reasons := strings.Join(cutOff(all.Next, reports, time.Now()), "; ")
	switch {
	case reasons != "" && !force:
		return fmt.Errorf("the next authority is not promoted, as clients would be cut off: %s. --force promotes it "+
			"all the same", reasons)
	case reasons != "":
		_, _ = fmt.Fprintf(c.err, "Warning: clients are cut off until they trust the new authority: %s.\n", reasons)
	}
	if err := r.Promote(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "promoted %s: the service presents a certificate of it within seconds\n",
		trust.Fingerprint(all.Next))
	return err
}

// cutOff returns which clients the promotion of the next authority would cut off; none = no client
// that the servers know of.
func cutOff(next *x509.Certificate, reports []store.AuthorityReport, now time.Time) (reasons []string) {
	var sessions []string
	for _, r := range reports {
		if r.Next != trust.Fingerprint(next) {
			reasons = append(reasons, strings.TrimSpace("the server "+r.ServerID)+" has not announced it: it is "+
				"stopped, of an older version, or needs a few seconds")
		} else if r.Untold > 0 {
			sessions = append(sessions, r.Sessions...)
		}
	}
	if len(sessions) > 0 {
		slices.Sort(sessions)
		reasons = append(reasons, "clients of the sessions "+strings.Join(slices.Compact(sessions), ", ")+
			" do not learn authorities: update them, or give them the new certificate")
	}
	if ready := pki.MadeAt(next).Add(announceTime); now.Before(ready) {
		reasons = append(reasons, fmt.Sprintf("it was made on %s UTC, and clients that are not connected have until "+
			"%s to learn it", date(pki.MadeAt(next)), date(ready)))
	}
	return reasons
}

func newCARetire(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:   "retire",
		Short: "End the trust in the authority that was in service before",
		Long: `End the trust in the authority before: clients forget it if they have learnt it, and its TLS sessions
are not resumed. What a client was given stays: replace its file, fingerprint or api.caBundle.`,
		Example: "  fairlead-server ca retire",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withRotation(cmd.Context(), at, nil, func(r pki.Rotation, _ *store.Store) error {
				err := r.Retire(cmd.Context())
				if errors.Is(err, pki.ErrNoRetiring) {
					return fmt.Errorf("%w: `fairlead-server ca promote` comes first", err)
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.out, "retired the authority before; give `fairlead-server ca` to clients "+
					"that were given its certificate")
				return err
			})
		},
	}
}
