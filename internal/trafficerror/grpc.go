// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficerror

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Status codes of gRPC.
const (
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcInternal          = 13
	grpcUnavailable       = 14
	grpcUnauthenticated   = 16
)

// SetGRPC makes the header of an answer to a gRPC or gRPC-web request the whole answer, with
// status 200: clients take other answers for faults of their own, and a 404 for a method that does
// not exist. It returns false for other requests.
func SetGRPC(answer, request http.Header, status int, code account.Code, msg string) bool {
	kind, _, _ := strings.Cut(request.Get("Content-Type"), ";")
	kind = strings.TrimSpace(kind)
	if rest, ok := strings.CutPrefix(strings.ToLower(kind), "application/grpc"); !ok ||
		rest != "" && rest[0] != '+' && rest != "-web" && !strings.HasPrefix(rest, "-web+") &&
			!strings.HasPrefix(rest, "-web-text") {
		return false
	}
	answer.Set("Content-Type", kind)
	answer.Set("Grpc-Status", strconv.Itoa(grpcStatus(status)))
	answer.Set("Grpc-Message", encodeGRPCMessage(string(code)+": "+msg))
	answer.Set("Content-Length", "0")
	return true
}

// grpcStatus returns the status code of gRPC for an error's HTTP status.
func grpcStatus(status int) int {
	switch status {
	case http.StatusUnauthorized:
		return grpcUnauthenticated
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		return grpcPermissionDenied
	case http.StatusTooManyRequests:
		return grpcResourceExhausted
	case http.StatusNotFound, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return grpcUnavailable
	}
	if 400 <= status && status < 500 && status != http.StatusBadRequest { // chosen by a policy's deny
		return grpcPermissionDenied
	}
	return grpcInternal
}

// encodeGRPCMessage encodes all bytes but printable ASCII, and "%".
func encodeGRPCMessage(msg string) string {
	var b strings.Builder
	for i := range len(msg) {
		if c := msg[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
