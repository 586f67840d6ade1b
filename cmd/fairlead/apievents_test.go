// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestAPIEvents_List(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	a.api(0, "credentials", "create", "--description", "alice's laptop")
	table := a.api(0, "events", "list", "--type", "credential.created", "-o", "wide").out
	if !regexp.MustCompile(`(?m)^TIME +TYPE +OBJECT +BY +DETAILS\n` + tableTime +
		` +credential\.created +cr-[0-9a-v]+ +ak-[0-9a-v]+ +description=alice's laptop\n`).MatchString(table) {
		t.Errorf("table:\n%s", table)
	}
	id := regexp.MustCompile(`cr-[0-9a-v]+`).FindString(table)
	var all []account.AuditEvent
	storetest.Must(t, json.Unmarshal([]byte(a.api(0, "events", "list", "--object-id", id, "-o", "json").out), &all))
	storetest.Equal(t, "events", len(all), 1)
	if text := a.api(0, "events", "get", all[0].ID).out; !regexp.MustCompile(`(?m)^type +credential\.created$`).
		MatchString(text) {
		t.Errorf("get:\n%s", text)
	}
	if r := a.api(2, "events", "list", "--type", "nothing"); !strings.Contains(r.err, "--type") ||
		!strings.Contains(r.err, "api_key.created") {
		t.Errorf("a wrong type: %s", r.err)
	}
	a.api(2, "events", "create")
	a.api(2, "events", "list", "--limit", "0")
	storetest.Equal(t, "lines", strings.Count(a.api(0, "events", "list", "--limit", "1").out, "\n"), 2)
}

func TestAPIEvents_Watch(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"wide", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			a := newAccountAPI(t)
			a.api(0, "credentials", "create", "--description", "before")
			ctx, stop := context.WithCancel(t.Context())
			out, in := io.Pipe()
			ended := make(chan int, 1)
			go func() {
				ended <- run(ctx, []string{"api", "events", "list", "--watch", "--type", "credential.created", "-o",
					format},
					console{in: strings.NewReader(""), out: in, err: io.Discard, env: func(k string) string {
						return a.env[k]
					}})
				_ = in.Close()
			}()
			lines := bufio.NewScanner(out)
			for _, want := range []string{"before", "after"} {
				for !strings.Contains(lines.Text(), want) { // the fixture has made others
					if !lines.Scan() || !strings.Contains(lines.Text(), "credential.created") {
						t.Fatalf("the watch shows %q, want %s", lines.Text(), want)
					}
				}
				if want == "before" {
					a.api(0, "credentials", "create", "--description", "after")
				}
			}
			stop()
			go func() { _, _ = io.Copy(io.Discard, out) }()
			if code := <-ended; code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
