// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// TestRows_MaskWhatIsRepeated checks that the list masks a header's secret that the URL repeats.
func TestRows_MaskWhatIsRepeated(t *testing.T) {
	t.Parallel()
	e := exchange("a", "GET", "/callback/"+secretBearer+"/"+secretMarked, 200, "", "")
	e.Request.Header.Set("Authorization", "Bearer "+secretBearer)
	e.Request.Header.Set("X-Marked", secretMarked)
	s := newSite(t, nil, e)
	if body := s.get("/"); strings.Contains(body, "planted") ||
		!strings.Contains(body, "/callback/"+inspect.Masked+"/") {
		t.Error("the list shows a secret that the URL repeats")
	}
}

// TestRows_FollowChanges checks that rows are made again when their exchange has changed.
func TestRows_FollowChanges(t *testing.T) {
	t.Parallel()
	open := exchange("a", "GET", "/", 0, "", "")
	open.Response, open.Done = nil, false
	rec := &fakeRecorder{}
	rec.add(open)
	list, cache := &lists{rec}, &rowCache{}
	before, _ := list.rows(listQuery{Rows: 10}, cache)
	rec.set(exchange("a", "GET", "/", 200, "", ""))
	rec.add(exchange("b", "GET", "/", 200, "", ""))
	after, _ := list.rows(listQuery{Rows: 10}, cache)
	if before[0].Status != "open" || len(after) != 2 || after[1].Status != "200" || len(cache.made) != 2 {
		t.Errorf("%+v, then %+v; %d cached", before, after, len(cache.made))
	}
}

func TestList_ShowsAddressesOfEndpoints(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	if body := s.get("/"); strings.Count(body, "also at") != 1 || !strings.Contains(body, "http://web.demo:8080") {
		t.Errorf("the endpoints are\n%s", body)
	}
}
