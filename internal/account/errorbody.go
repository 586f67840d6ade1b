// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"encoding/json"
	"fmt"
)

// ErrorBody is the JSON body of every error that a part of Fairlead answers over HTTP.
type ErrorBody struct {
	Code    Code              `json:"error_code"`
	Status  int               `json:"status_code"`
	Msg     string            `json:"msg"`
	Details map[string]string `json:"details"` // never null
	Errors  []FieldError      `json:"errors,omitempty"`
}

// JSON returns the body as a line of JSON.
func (b ErrorBody) JSON() []byte {
	if b.Details == nil {
		b.Details = map[string]string{}
	}
	line, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("account: encoding an error body: %v", err)) // strings and numbers always encode
	}
	return append(line, '\n')
}
