// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestReadyz_OnASmallDisk fills the disk of a running server, and starts servers on a full disk.
func TestReadyz_OnASmallDisk(t *testing.T) {
	t.Parallel()
	storetest.OnSmallDisk(t, 8, func(d *storetest.SmallDisk) {
		data := filepath.Join(d.Dir, "data")
		r := servicetest.Start(t, func(o *service.Options) { o.DataDir = data })
		awaitReadyz := func(want int) (body string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // it takes 1 s
			defer cancel()
			for status := 0; status != want; {
				if status, body = r.GetHealth("/readyz"); ctx.Err() != nil {
					t.Fatalf("/readyz is %d for too long: %s", status, body)
				}
			}
			return body
		}
		awaitReadyz(http.StatusOK)
		d.Fill()
		body := awaitReadyz(http.StatusServiceUnavailable)
		if !strings.Contains(body, data) || !strings.Contains(body, "is full; ") {
			t.Errorf("a full disk: %q", body)
		}
		d.Free()
		awaitReadyz(http.StatusOK)
		r.Stop()
		storetest.Must(t, <-r.Finished)

		d.Fill()
		for _, dir := range []string{data, filepath.Join(d.Dir, "new")} {
			err := servicetest.StartError(t, func(o *service.Options) { o.DataDir = dir })
			want := "the disk that holds data directory " + dir + " is full; free some space there"
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("a start on a full disk: %v", err)
			}
		}
	})
}
