// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// SetMaxPages makes the disk of a SQLite store full: the file cannot grow over so many pages; 0
// stands for as many as it has.
func SetMaxPages(ctx context.Context, s *store.Store, pages int) error {
	var now int
	return s.Database().WriterRow(ctx, fmt.Sprintf(`PRAGMA max_page_count = %d`, max(1, pages))).Scan(&now)
}
