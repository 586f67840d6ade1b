// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

const loginPolicy = "on_http_request:\n  - actions:\n      - type: basic-auth\n        config:\n          " +
	"credentials: ['alice:hush-hush']\n"

func TestSecretKey_IsRequiredForStoredPolicies(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	path := filepath.Join(r.Options.DataDir, service.SecretKeyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key's file: %v, %v", info, err)
	}
	var wrong struct{ Errors []account.FieldError }
	if status := r.CallAPI("POST", "/endpoints",
		map[string]any{"url": "http://shop.demo",
			"traffic_policy": "on_http_request:\n  - actions: [{type: nonsense}]"},
		&wrong); status != http.StatusBadRequest ||
		len(wrong.Errors) != 1 || !strings.HasPrefix(wrong.Errors[0].Rule, "line 2, column ") {
		t.Errorf("a wrong policy: status %d, %+v", status, wrong)
	}
	var made account.Endpoint
	r.CreateObject("/endpoints", map[string]any{"url": "http://shop.demo", "traffic_policy": loginPolicy}, &made)
	if strings.Contains(made.TrafficPolicy, "hush") || !strings.Contains(made.TrafficPolicy, "redacted:") {
		t.Errorf("the answer shows\n%s", made.TrafficPolicy)
	}
	r.Stop()
	must.Succeed(t, servicetest.Receive(t, r.Finished, "end"))
	other := filepath.Join(t.TempDir(), "other.key")
	for text, want := range map[string]string{
		strings.Repeat("ab", 32): "with which this store's traffic policies are sealed",
		"abc":                    "64 hexadecimal digits"} {
		must.Succeed(t, os.WriteFile(other, []byte(text), 0o600))
		opt := r.Options
		opt.SecretKeyFile = other
		if err := service.Run(servicetest.Context(t), opt); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), text) {
			t.Errorf("another key: %v, want %q", err, want)
		}
	}
	if strings.Contains(r.Log.String(), "hush") {
		t.Error("the log holds a policy")
	}
	again := servicetest.Start(t, func(o *service.Options) { o.DataDir = r.Options.DataDir })
	var got account.Endpoint
	if status := again.CallAPI("GET", "/endpoints/"+made.ID, nil, &got); status != http.StatusOK ||
		got.TrafficPolicy != made.TrafficPolicy {
		t.Errorf("after a restart: status %d\n%s", status, got.TrafficPolicy)
	}
}
