// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
)

// SetMaxPages makes the disk of a SQLite store full, for tests of what then happens: the file
// cannot grow over so many pages; 0 stands for as many as it has.
func (s *Store) SetMaxPages(ctx context.Context, pages int) error {
	var now int
	return s.writer.QueryRowContext(ctx, fmt.Sprintf(`PRAGMA max_page_count = %d`, max(1, pages))).Scan(&now)
}
