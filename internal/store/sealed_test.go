// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/store"
	"github.com/fairlead-dev/fairlead/internal/store/storetest"
)

// What lies on the disk shows nothing of a policy, not even a digest that a guess could be compared with.
func TestPoliciesAreSealedOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(t.Context(), opt)
	})
	e := f.Cloud("http://shop.demo")
	e.TrafficPolicy, e.Metadata = "hush-hush", "not-hidden"
	_, err := f.Store.CreateEndpoint(t.Context(), e, account.PolicyFacts{Digest: "guessable-digest"})
	storetest.Must(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	storetest.Must(t, err)
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		storetest.Must(t, err)
		all = append(all, content...)
	}
	if !bytes.Contains(all, []byte("not-hidden")) {
		t.Fatal("this test looks in the wrong place")
	}
	for _, secret := range []string{"hush-hush", "guessable-digest"} {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("the files hold %q", secret)
		}
	}
}
