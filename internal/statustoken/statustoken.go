// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statustoken owns the bearer token of a forwarder's /status, which shows account, operator
// and hostnames.
//
// It is derived from the UID of the installation's KubernetesOperator, which Kubernetes draws at
// random and shows to those who may read that object. They can read there all that a status shows,
// so the token grants nothing new, and no Secret has to be stored: the forwarder, the manager and,
// with the user's rights, `fairlead doctor` read the object. What comes in: UID and pod; what goes
// out: the token, which holds for that pod alone.
package statustoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// Parameter is the query parameter with the token, for clients that cannot set a header, as
// `kubectl get --raw`.
const Parameter = "token"

const scheme = "Bearer "

// Derive returns the token for the pod's status. It is empty while the KubernetesOperator, or the
// pod's name, is unknown.
func Derive(operatorUID, pod string) string {
	if operatorUID == "" || pod == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(operatorUID))
	mac.Write([]byte("fairlead forwarder status\n" + pod))
	return hex.EncodeToString(mac.Sum(nil))
}

// SetHeader puts the token into the request's header.
func SetHeader(r *http.Request, token string) { r.Header.Set("Authorization", scheme+token) }

// Valid reports whether the request has the token, which must not be empty.
func Valid(r *http.Request, token string) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !ok {
		given = r.URL.Query().Get(Parameter)
	}
	return token != "" && hmac.Equal([]byte(given), []byte(token))
}
