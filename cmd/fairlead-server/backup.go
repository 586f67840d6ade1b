// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/store"
)

func newBackup(c console, at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a copy of the SQLite store to a file, also while the server runs",
		Long: `Write a copy of the SQLite store, of one moment, to a new file. The server may run meanwhile. Of the data directory, keep ca.crt and ca.key and the
secret key file, too: without the key, stored traffic policies cannot be read. A PostgreSQL store is backed up with pg_dump.`,
		Example: `  fairlead-server backup /backup/fairlead-$(date +%F).db`,
		Args:    arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := onlySQLite(at, "back it up with `pg_dump --format=custom`"); err != nil {
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

func newRestore(c console, at *place) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the place of the SQLite store; the server is stopped",
		Long: `Put a file that ` + "`fairlead-server backup`" +
			` wrote in the place of the SQLite store. The server must be stopped. The store that is replaced is kept beside it.
Watchers list again, agents connect again. API keys and authtokens are as they were at the backup: the answer names those that are valid again.`,
		Example: `  fairlead-server restore /backup/fairlead-2026-11-20.db`,
		Args:    arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := out.check()
			if err == nil {
				err = onlySQLite(at, "restore it with pg_restore, then run `fairlead-server store new-epoch`")
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

func newStore(c console, at *place) *cobra.Command {
	return group("store", "Look after the store itself", newStoreEpoch(c, at))
}

func newStoreEpoch(c console, at *place) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Tell all watchers to list again, after pg_restore; the server is stopped",
		Long: `Begin a new epoch: what a store needs after its database was put back by pg_restore, a snapshot or a standby that lagged behind. The server must be
stopped. Watchers list again, sessions end. The answer lists every API key and authtoken that is valid now: delete those that were revoked since.`,
		Example: `  fairlead-server store new-epoch --database-url-file /etc/fairlead/database-url`,
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := out.check()
			if err != nil {
				return err
			}
			opt := store.Options{DataDir: at.dataDir}
			if opt.DatabaseURL, err = at.url(); err != nil {
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

// onlySQLite refuses when the store is a PostgreSQL database.
func onlySQLite(at *place, remedy string) error {
	databaseURL, err := at.url()
	if err == nil && databaseURL != "" {
		err = errors.New("the store is a PostgreSQL database: " + remedy + "; docs/operations.md has the steps")
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
		return printJSON(w, restoredJSON{r.Epoch, r.ReplacedFile, r.Compared, list(r.Valid), list(r.Reactivated),
			list(r.Changed),
			list(r.Unknown)})
	}
	// list has the error
	_, _ = fmt.Fprintf(w, "%s; its epoch is %d: watchers list again, sessions have ended\n", what, r.Epoch)
	if r.ReplacedFile != "" {
		_, _ = fmt.Fprintf(w, "the store that was there before is kept as %s\n", r.ReplacedFile)
	}
	if !r.Compared {
		return printCredentials(w,
			"there is nothing to compare with: delete those of these valid credentials that were revoked since:", r.Valid)
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
	_, _ = fmt.Fprintf(w, "\n%s\n", heading) // list has the error
	rows := make([][]string, len(all))
	for i, c := range all {
		rows[i] = []string{c.Kind, c.ID, c.Account, strings.Join(c.Rules, " "), date(c.CreatedAt), dateOrNever(c.ExpiresAt),
			orDash(c.Description)}
	}
	return (&output{format: "table"}).list(w, nil, "KIND\tID\tACCOUNT\tRULES\tCREATED (UTC)\tEXPIRES\tDESCRIPTION", rows)
}
