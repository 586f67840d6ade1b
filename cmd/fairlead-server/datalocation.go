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

// maxURLFile is how many bytes of a --database-url-file are read.
const maxURLFile = 16 << 10

// dataLocation is the flags of all commands that locate a server's data.
type dataLocation struct {
	dataDir string
	urlFlag string // --database-url
	urlFile string // --database-url-file
	urlText string // value of databaseURLVariable
}

func (p *dataLocation) addFlags(f *pflag.FlagSet, env func(string) string) {
	p.urlText = env(databaseURLVariable)
	f.StringVar(&p.dataDir, "data-dir", defaultDataDir(env, os.Geteuid()),
		"`DIR` of the SQLite database, its certificate authority and the lock")
	f.StringVar(&p.urlFlag, "database-url", "",
		"`URL` of a PostgreSQL database, without password: postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full. "+
			"Default: SQLite in --data-dir")
	f.StringVar(&p.urlFile, "database-url-file", "",
		"`FILE` with the URL, which may have a password; so may the variable "+databaseURLVariable)
}

// databaseURL returns the URL of the PostgreSQL database, "" for SQLite. The URL may hold a
// password; errors do not.
func (p *dataLocation) databaseURL() (string, error) {
	switch {
	case p.urlFlag != "" && p.urlFile != "":
		return "", account.Invalid("--database-url-file", p.urlFile, "give it or --database-url, not both")
	case p.urlFlag != "":
		return p.urlFlag, refusePassword(p.urlFlag)
	case p.urlFile != "":
		return readURLFile(p.urlFile)
	}
	return strings.TrimSpace(p.urlText), nil
}

// refusePassword returns an error for a URL with a password: process arguments are public.
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

func readURLFile(path string) (string, error) {
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
		return "", account.Invalid("--database-url-file", path,
			"is empty; it must hold the URL of a PostgreSQL database")
	}
	return found, nil
}
