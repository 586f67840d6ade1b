// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// withStore calls do with an existing store; a server may use it at the same time.
func withStore(ctx context.Context, at *dataLocation, do func(*store.Store) error) (err error) {
	return withKeyedStore(ctx, at, nil, do)
}

// withKeyedStore is withStore for what needs the secret key.
func withKeyedStore(ctx context.Context, at *dataLocation, key *seal.Key, do func(*store.Store) error) (err error) {
	databaseURL, err := at.databaseURL()
	if err != nil {
		return err
	}
	if _, err := os.Stat(at.dataDir); databaseURL == "" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(
			"data directory %s does not exist; give the server's with --data-dir, or start the server first, which "+
				"makes it",
			at.dataDir)
	}
	st, err := store.Open(ctx, store.Options{DataDir: at.dataDir, DatabaseURL: databaseURL, Key: key})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return do(st)
}

// awaitServers waits until the running servers have applied what a command has changed of the
// account, and returns what the command prints of it. It warns of servers that have not.
func awaitServers(ctx context.Context, c console, st *store.Store, accountID string) (string, error) {
	applied, err := st.AwaitServers(ctx, accountID)
	switch {
	case err != nil:
		return "", fmt.Errorf("the change is made, but it is not known whether the servers have applied it: %w", err)
	case len(applied.Missing) > 0:
		missing := cmp.Or(strings.TrimSpace(strings.Join(applied.Missing, ", ")), "the server")
		_, err = fmt.Fprintf(c.err, "Warning: %s did not confirm the change. It takes effect there within a second, "+
			"or as soon as it reaches the database.\n", missing)
		return "not confirmed by " + missing, err
	case applied.Servers == 0:
		return "no server is running", nil
	case applied.Servers == 1:
		return "in effect on the server", nil
	}
	return fmt.Sprintf("in effect on all %d servers", applied.Servers), nil
}

// findAccount finds an account by id or name; "" finds the only account.
func findAccount(ctx context.Context, st *store.Store, wanted string) (*account.Account, error) {
	all, err := st.ListAccounts(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, a := range all {
		if wanted != "" && (a.ID == wanted || a.Name == wanted) {
			return &a, nil
		}
		names[i] = a.Name
	}
	switch {
	case len(all) == 0:
		return nil,
			errors.New(
				"there is no account yet; start the server once, or make one with `fairlead-server account " +
					"create NAME`")
	case wanted != "":
		return nil, account.Invalid("--account", wanted,
			"no account has this id or name; there are "+strings.Join(names, ", "))
	case len(all) > 1:
		return nil, account.Invalid("--account", "",
			"there are several accounts; give one of "+strings.Join(names, ", "))
	}
	return &all[0], nil
}

// deleteFromAccount calls remove with the wanted account; without one it tries all accounts until
// remove finds what it deletes.
func deleteFromAccount(
	ctx context.Context, st *store.Store, wanted string, remove func(accountID string) error,
) error {
	if wanted != "" {
		a, err := findAccount(ctx, st, wanted)
		if err != nil {
			return err
		}
		return remove(a.ID)
	}
	all, err := st.ListAccounts(ctx)
	if err != nil {
		return err
	}
	err = errors.New("there is no account yet")
	for _, a := range all {
		if err = remove(a.ID); account.CodeOf(err) != account.CodeNotFound {
			return err
		}
	}
	return err
}
