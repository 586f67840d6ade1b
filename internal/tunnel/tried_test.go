// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHeader_LeavesOutTried checks that endpoints that were tried, as hints of agents name them, keep no
// stream from being opened.
func TestHeader_LeavesOutTried(t *testing.T) {
	t.Parallel()
	long, annotations := strings.Repeat("x", max(maxAnnotationBytes, triedLimit+1)), map[string]string{}
	for i := range maxAnnotations {
		annotations[fmt.Sprintf("%03d", i)] = long[:maxAnnotationBytes/maxAnnotations-3]
	}
	for name, h := range map[string]OpenHeader{
		"too long": {EndpointID: "e", Tried: long[:triedLimit+1]},
		"beside all the rest": {EndpointID: long[:128], Host: long[:255], Scheme: long[:16], ClientAddr: long[:128],
			TraceID: long[:128], Tried: long[:triedLimit], Pod: &PodIdentity{Namespace: long[:253], Name: long[:253],
				ServiceAccount: long[:253], Annotations: annotations}},
	} {
		b, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := readHeader(bytes.NewReader(b), func(int) {})
		h.Tried = ""
		if d := cmp.Diff(h, got); d != "" || err != nil {
			t.Errorf("%s: %v: %s", name, err, d)
		}
	}
}
