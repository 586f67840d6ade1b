// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// endpoint returns an online endpoint.
func endpoint(id, url, projectionID, typ string) account.Endpoint {
	return account.Endpoint{
		ID: id, URL: url,
		EndpointSettings: account.EndpointSettings{Name: id}, Type: typ,
		Bindings:     []string{account.BindingKubernetes},
		Status:       account.StatusOnline,
		ProjectionID: projectionID,
		CreatedAt:    time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	}
}
