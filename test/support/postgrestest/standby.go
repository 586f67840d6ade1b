// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package postgrestest

import (
	"context"
	"fmt"
	"net/url"
)

// Standby makes and starts a server that replicates this one, asynchronously, with the same
// settings.
func (s *Server) Standby() (*Server, error) {
	standby := &Server{bin: s.bin, settings: s.settings, as: s.as}
	return standby.create("pg_basebackup", "--host="+s.dir, "--username=fairlead", "--no-sync", "--checkpoint=fast",
		"--write-recovery-conf", "--pgdata")
}

// CutReplication stops a standby from hearing more of its primary, whose later writes it lacks.
func (s *Server) CutReplication(ctx context.Context) error {
	for _, statement := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if err := s.Exec(ctx, s.url(nil), statement); err != nil {
			return err
		}
	}
	return s.Exec(ctx, s.url(nil), `DO $$ BEGIN
		WHILE EXISTS (SELECT 1 FROM pg_stat_wal_receiver) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$`)
}

// Promote makes the standby a primary and waits until it is one.
func (s *Server) Promote(ctx context.Context) error {
	if err := s.Exec(ctx, s.url(nil), `SELECT pg_promote()`); err != nil {
		return fmt.Errorf("promoting the standby: %w", err)
	}
	return nil
}

// WithStandby returns a URL of this server with the standby as its second host.
func (s *Server) WithStandby(databaseURL string, standby *Server) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set("host", s.dir+","+standby.dir)
	u.RawQuery = query.Encode()
	return u.String(), nil
}
