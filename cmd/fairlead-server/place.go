// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// databaseURLVariable holds the database's URL when no flag does.
const databaseURLVariable = "FAIRLEAD_DATABASE_URL"

// maxURLFile bounds how much is read of a --database-url-file.
const maxURLFile = 16 << 10

// place says where a server's data lies: flags of all commands.
type place struct {
	dataDir string
	flagURL string // --database-url
	urlFile string // --database-url-file
	env     func(string) string
}

func (p *place) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.dataDir, "data-dir", defaultDataDir(p.env, os.Geteuid()),
		"`DIR` of the database, the authority and the lock")
	f.StringVar(&p.flagURL, "database-url", "",
		"`URL` of a PostgreSQL database, without password: postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full. "+
			"Default: SQLite in --data-dir")
	f.StringVar(&p.urlFile, "database-url-file", "",
		"`FILE` with the URL, which may have a password; so may the variable "+
			databaseURLVariable)
}

// url returns the URL of the PostgreSQL database, "" for SQLite. It may hold a password, and no
// error that it returns does.
func (p *place) url() (string, error) {
	switch {
	case p.flagURL != "" && p.urlFile != "":
		return "", account.Invalid("--database-url-file", p.urlFile, "give it or --database-url, not both")
	case p.flagURL != "":
		return p.flagURL, refusePassword(p.flagURL)
	case p.urlFile != "":
		return readURL(p.urlFile)
	}
	return strings.TrimSpace(p.env(databaseURLVariable)), nil
}

// refusePassword keeps passwords out of the process's arguments.
func refusePassword(databaseURL string) error {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return account.Invalid("--database-url", "(not shown)",
			"is no URL; special characters of user and password are percent-encoded")
	}
	if _, has := u.User.Password(); has || u.Query().Has("password") || u.Query().Has("sslpassword") {
		return account.Invalid("--database-url", "(not shown)",
			"has a password, which every user of this machine can see in the list of processes; "+
				"put the URL into a file for --database-url-file or into "+databaseURLVariable+
				", or leave the password to PGPASSFILE")
	}
	return nil
}

func readURL(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading --database-url-file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxURLFile))
	if err != nil {
		return "", fmt.Errorf("reading --database-url-file: %w", err)
	}
	found := strings.TrimSpace(string(text))
	if found == "" {
		return "", account.Invalid("--database-url-file", path, "is empty; it must hold the URL of a PostgreSQL database")
	}
	return found, nil
}
