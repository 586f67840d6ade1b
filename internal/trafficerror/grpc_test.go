// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficerror

import (
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestSetGRPC_AnswersGRPCRequestsOnly(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]string{
		"application/grpc": "application/grpc", "application/grpc+proto": "application/grpc+proto",
		"application/grpc; charset=utf-8": "application/grpc",
		"application/grpc-web+proto":      "application/grpc-web+proto",
		"Application/GRPC":                "Application/GRPC", "application/grpc-web-text": "application/grpc-web-text",
		"application/grpcx": "", "application/json": "", "": "",
	} {
		h := http.Header{}
		request := http.Header{"Content-Type": {contentType}}
		got := SetGRPC(h, request, 503, account.CodeEndpointOffline, "100 % „off“\n")
		if got != (want != "") || h.Get("Content-Type") != want || got && (h.Get("Grpc-Status") != "14" ||
			h.Get("Grpc-Message") != "ERR_FL_3001: 100 %25 %E2%80%9Eoff%E2%80%9C%0A") {
			t.Errorf("%q: %v %v", contentType, got, h)
		}
	}
}

// TestSetGRPC_MapsEveryCode checks that no code of ours becomes UNIMPLEMENTED or OK.
func TestSetGRPC_MapsEveryCode(t *testing.T) {
	t.Parallel()
	want := map[int]int{400: 13, 401: 16, 403: 7, 404: 14, 421: 7, 429: 8, 451: 7, 500: 13, 502: 14,
		503: 14, 504: 14, 508: 13}
	for status, code := range want {
		if got := grpcStatus(status); got != code {
			t.Errorf("%d: %d, want %d", status, got, code)
		}
	}
	for _, row := range account.Codes() {
		if got := grpcStatus(row.Status); got == 12 || got == 0 {
			t.Errorf("%s (%d): %d", row.Code, row.Status, got)
		}
	}
}
