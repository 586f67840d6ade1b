// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// backendList is a page of backends of one kind. The types below say the same to the API's
// description.
type backendList struct {
	Backends    []any   `json:"backends"`
	URI         string  `json:"uri"`
	NextPageURI *string `json:"next_page_uri"`
}

type failoverBackend struct {
	ID            string        `json:"id"`
	URI           string        `json:"uri"`
	CreatedAt     time.Time     `json:"created_at"`
	UpdatedAt     time.Time     `json:"updated_at"`
	Description   string        `json:"description"`
	Metadata      string        `json:"metadata"`
	Backends      []string      `json:"backends"`
	Health        backendHealth `json:"health"`
	ActiveBackend string        `json:"active_backend"` // "" = not known: nothing was forwarded yet
}

type backendHealth struct {
	HTTPStatus     []int `json:"http_status"`
	WindowSeconds  int   `json:"window_seconds,omitempty"` // as the other numbers: left out while it is the default
	MinAnswers     int   `json:"min_answers,omitempty"`
	FailurePercent int   `json:"failure_percent,omitempty"`
	MinClients     int   `json:"min_clients,omitempty"`
}

type weightedBackend struct {
	ID          string         `json:"id"`
	URI         string         `json:"uri"`
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
	Description string         `json:"description"`
	Metadata    string         `json:"metadata"`
	Backends    map[string]int `json:"backends"`
}

type tunnelGroupBackend struct {
	ID          string            `json:"id"`
	URI         string            `json:"uri"`
	CreatedAt   time.Time         `json:"created_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
	Description string            `json:"description"`
	Metadata    string            `json:"metadata"`
	Labels      map[string]string `json:"labels"`
	Tunnels     []account.Ref     `json:"tunnels"`
}

type httpResponseBackend struct {
	ID          string            `json:"id"`
	URI         string            `json:"uri"`
	CreatedAt   time.Time         `json:"created_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
	Description string            `json:"description"`
	Metadata    string            `json:"metadata"`
	StatusCode  int               `json:"status_code"`
	Headers     map[string]string `json:"headers"`
	Body        string            `json:"body"`
}

type staticBackend struct {
	ID          string    `json:"id"`
	URI         string    `json:"uri"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Description string    `json:"description"`
	Metadata    string    `json:"metadata"`
	Address     string    `json:"address"`
	TLS         staticTLS `json:"tls"`
}

type staticTLS struct {
	Enabled bool `json:"enabled"`
}

// Lists of each kind, for the API's description.
type (
	failoverList struct {
		Backends    []failoverBackend `json:"backends"`
		URI         string            `json:"uri"`
		NextPageURI *string           `json:"next_page_uri"`
	}
	weightedList struct {
		Backends    []weightedBackend `json:"backends"`
		URI         string            `json:"uri"`
		NextPageURI *string           `json:"next_page_uri"`
	}
	tunnelGroupList struct {
		Backends    []tunnelGroupBackend `json:"backends"`
		URI         string               `json:"uri"`
		NextPageURI *string              `json:"next_page_uri"`
	}
	httpResponseList struct {
		Backends    []httpResponseBackend `json:"backends"`
		URI         string                `json:"uri"`
		NextPageURI *string               `json:"next_page_uri"`
	}
	staticList struct {
		Backends    []staticBackend `json:"backends"`
		URI         string          `json:"uri"`
		NextPageURI *string         `json:"next_page_uri"`
	}
)
