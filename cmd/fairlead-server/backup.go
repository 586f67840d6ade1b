// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

func newBackup(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the SQLite store to a file, also while the server runs",
		Long: `Write a consistent copy of the SQLite store to a new file. The server may run meanwhile. Keep ca.crt,
ca.key and the secret key file of the data directory, too: without the key, stored traffic policies
cannot be read. A PostgreSQL store, which has the authority, is backed up with pg_dump.`,
		Example: `  fairlead-server backup /backup/fairlead-$(date +%F).db`,
		Args:    arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := requireSQLite(at, "back it up with `pg_dump --format=custom`"); err != nil {
				return err
			}
			if err := store.Backup(cmd.Context(), at.dataDir, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.out, "backup written to %s\n", args[0])
			return err
		},
	}
}

func newRestore(c console, at *dataLocation) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the SQLite store by a backup; needs a stopped server",
		Long: `Replace the SQLite store by a file that ` + "`fairlead-server backup`" +
			` wrote. The server must be stopped. The
replaced store is kept beside the new one.

Watchers list again, agents connect again. API keys and authtokens are as they were at the backup:
the answer names those that are valid again.`,
		Example: `  fairlead-server restore /backup/fairlead-2026-11-20.db`,
		Args:    arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := out.check()
			if err == nil {
				err = requireSQLite(at, "restore it with pg_restore, then run `fairlead-server store new-epoch`")
			}
			if err != nil {
				return err
			}
			restored, err := store.Restore(cmd.Context(), store.Options{DataDir: at.dataDir}, args[0])
			if err != nil {
				return err
			}
			return printRestored(c.out, &out, restored, "store restored from "+args[0])
		},
	}
	out.addFlag(cmd)
	return cmd
}

func newStore(c console, at *dataLocation) *cobra.Command {
	return newGroup("store", "Maintain the store itself", newStoreEpoch(c, at), newStoreSingle(c, at))
}

func newStoreEpoch(c console, at *dataLocation) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Make all watchers list again, after pg_restore; needs a stopped server",
		Long: `Begin a new epoch. A store needs one after its database was replaced by pg_restore, a snapshot or a
standby that lagged behind. The server must be stopped. Watchers list again, sessions end. The answer
lists every API key and authtoken that is valid now: delete those that were revoked since.`,
		Example: `  fairlead-server store new-epoch --database-url-file /etc/fairlead/database-url`,
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := out.check()
			if err != nil {
				return err
			}
			opt := store.Options{DataDir: at.dataDir}
			if opt.DatabaseURL, err = at.databaseURL(); err != nil {
				return err
			}
			restored, err := store.NewEpoch(cmd.Context(), opt)
			if err != nil {
				return err
			}
			return printRestored(c.out, &out, restored, "new epoch begun")
		},
	}
	out.addFlag(cmd)
	return cmd
}

func newStoreSingle(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:   "single",
		Short: "Let one server without --relay-address use the database; needs stopped servers",
		Long: `Leave the mode in which several servers use one PostgreSQL database. The first server with
--relay-address begins it, and from then on a server without that flag is refused. All servers must
be stopped.`,
		Example: `  fairlead-server store single --database-url-file /etc/fairlead/database-url`,
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt := store.Options{DataDir: at.dataDir}
			var err error
			if opt.DatabaseURL, err = at.databaseURL(); err != nil {
				return err
			}
			if opt.DatabaseURL == "" {
				return errors.New("the store in " + at.dataDir +
					" is SQLite, which one server uses at a time; name a " +
					"PostgreSQL database with --database-url-file")
			}
			changed, err := store.UseOneServer(cmd.Context(), opt)
			if err != nil {
				return err
			}
			text := "the store was for one server already"
			if changed {
				text = "the store is for one server now; start it without --relay-address"
			}
			_, err = fmt.Fprintln(c.out, text)
			return err
		},
	}
}

// requireSQLite returns an error with the remedy when the store is a PostgreSQL database.
func requireSQLite(at *dataLocation, remedy string) error {
	databaseURL, err := at.databaseURL()
	if err == nil && databaseURL != "" {
		err = errors.New("the store is a PostgreSQL database: " + remedy + "; docs/run/backup.md has the steps")
	}
	return err
}

// restoredJSON is a restore as the commands print it.
type restoredJSON struct {
	Epoch      int64              `json:"epoch"`
	Replaced   string             `json:"replaced,omitempty"`
	Compared   bool               `json:"compared"`
	Valid      []store.Credential `json:"valid"`
	ValidAgain []store.Credential `json:"valid_again"`
	Changed    []store.Credential `json:"changed"`
	Gone       []store.Credential `json:"gone"`
}

func printRestored(w io.Writer, out *output, r *store.Restored, what string) error {
	if out.format == "json" {
		list := func(c []store.Credential) []store.Credential { return append([]store.Credential{}, c...) }
		return cli.WriteJSON(w, restoredJSON{r.Epoch, r.ReplacedFile, r.Compared, list(r.Valid), list(r.Reactivated),
			list(r.Changed),
			list(r.Unknown)})
	}
	// printCredentials returns the error of the writer.
	_, _ = fmt.Fprintf(w, "%s; its epoch is %d: watchers list again, sessions have ended\n", what, r.Epoch)
	if r.ReplacedFile != "" {
		_, _ = fmt.Fprintf(w, "the store that was there before is kept as %s\n", r.ReplacedFile)
	}
	if !r.Compared {
		return printCredentials(w,
			"there is nothing to compare with: delete those of these valid credentials that were revoked since:",
			r.Valid)
	}
	return errors.Join(
		printCredentials(w, "valid again, though deleted since the backup; delete them once more:", r.Reactivated),
		printCredentials(w, "with the rules and expiry that they had at the backup:", r.Changed),
		printCredentials(w, "unknown now, for they were made since the backup; make new ones:", r.Unknown))
}

func printCredentials(w io.Writer, heading string, all []store.Credential) error {
	if len(all) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", heading) // printTable returns the error of the writer
	rows := convert(all, func(c store.Credential) []string {
		return []string{c.Kind, c.ID, c.Account, strings.Join(c.Rules, " "), date(c.CreatedAt),
			dateOrNever(c.ExpiresAt),
			orDash(c.Description)}
	})
	return printTable(w, []string{"KIND", "ID", "ACCOUNT", "RULES", "CREATED (UTC)", "EXPIRES", "DESCRIPTION"}, rows)
}
