// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Reason is why a Trust does not let a peer answer for an endpoint.
type Reason string

// The reasons.
const (
	KeyUnknown   Reason = "KeyUnknown"   // no authority of the owner has signed its certificate for a server
	KeyChanged   Reason = "KeyChanged"   // its key is none of those that are pinned
	NameMismatch Reason = "NameMismatch" // its certificate names another account or other endpoints
	Expired      Reason = "Expired"      // its certificate has expired, or is not valid yet
	NotSealed    Reason = "NotSealed"    // it does not speak the protocol
)

var reasonTexts = map[Reason]string{
	KeyUnknown:   "no authority of the owner has signed the agent's key for it",
	KeyChanged:   "the agent's key is not one that is pinned for it",
	NameMismatch: "the agent's certificate does not name it",
	Expired:      "the agent's certificate has expired or is not valid yet",
	NotSealed:    "the other end does not speak the protocol of sealed endpoints",
}

// UntrustedError means that a Trust does not let the peer answer for the endpoint. The peer has seen
// nothing of the connection.
type UntrustedError struct {
	Reason Reason
	Key    trust.Pin // the peer's public key; the zero value if NotSealed
	Err    error     // more about the reason; may be nil
}

// Error returns the reason as a sentence.
func (e *UntrustedError) Error() string {
	text := "sealed endpoint: " + reasonTexts[e.Reason]
	if e.Key != (trust.Pin{}) {
		text += " (" + FormatKey(e.Key) + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *UntrustedError) Unwrap() error { return e.Err }

// Codes with which Accept refuses a caller. An agent has more for Incoming.Refuse.
const (
	CodeHeader          = "HEADER"            // the header is unreadable
	CodeWrongURL        = "WRONG_URL"         // the agent's certificate does not name the URL
	CodeCallerNotProven = "CALLER_NOT_PROVEN" // the agent's owner requires a proof
)

// RefusedError means that the agent refused the connection. It has not used any of the caller's
// bytes, so they may be sent elsewhere.
type RefusedError struct {
	Code string
	Text string // a sentence of the agent, at most 512 bytes
}

// Error returns the agent's sentence.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the agent refused (%s): %s", e.Code, e.Text)
}

const textLimit = 512

// shorten cuts a text at textLimit.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), textLimit)], "")
}
