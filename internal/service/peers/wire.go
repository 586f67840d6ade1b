// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Limits of what peers send each other.
const (
	maxHolders      = 64       // holders in an answer: those of the fewest connections
	maxQuestionSize = 64 << 10 // bytes
	maxAnswerSize   = 16 << 20
	maxChangeSize   = 1 << 20
	maxChangeIDs    = 10_000 // ids in one message; a change of more is sent as several
)

// holderMessage is a Holder as it is sent. The API's form of an endpoint leaves out some fields.
type holderMessage struct {
	Holder

	AccountID string `json:"account_id"`
	HostMode  string `json:"host_mode"`
}

type holdersMessage struct {
	Holders []holderMessage `json:"holders"`
}

func encodeHolders(all []Holder) ([]byte, error) {
	m := holdersMessage{Holders: make([]holderMessage, 0, len(all))}
	for i := range all {
		m.Holders = append(m.Holders, holderMessage{all[i], all[i].Endpoint.AccountID, all[i].Endpoint.HostMode})
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding holders: %w", err)
	}
	return b, nil
}

func decodeHolders(b []byte) ([]Holder, error) {
	m, err := decode[holdersMessage](b, "holders")
	if err != nil {
		return nil, err
	}
	if len(m.Holders) > maxHolders {
		return nil, fmt.Errorf("decoding holders: %d of them, at most %d are allowed", len(m.Holders), maxHolders)
	}
	all := make([]Holder, 0, len(m.Holders))
	for i := range m.Holders {
		h := &m.Holders[i]
		if h.Endpoint.ID == "" || h.AccountID == "" {
			return nil, fmt.Errorf("decoding holders: holder %d has no endpoint id or no account id", i)
		}
		h.Endpoint.AccountID, h.Endpoint.HostMode = h.AccountID, h.HostMode
		all = append(all, h.Holder)
	}
	return all, nil
}

// pingMessage is the answer to a ping.
type pingMessage struct {
	StoreAge int64 `json:"store_age_ms"`
}

// decodePing returns the age in an answer; -1 for one of a version that does not state it.
func decodePing(b []byte) time.Duration {
	m := pingMessage{StoreAge: -1}
	if json.Unmarshal(b, &m) != nil || m.StoreAge < 0 {
		return -1
	}
	return time.Duration(m.StoreAge) * time.Millisecond
}

func decodeQuery(b []byte) (Query, error) { return decode[Query](b, "a question") }

func decodeChange(b []byte) (Change, error) {
	c, err := decode[Change](b, "a change")
	if err == nil && c.Kind == "" {
		err = errors.New("decoding a change: its kind is missing")
	}
	return c, err
}

// decode returns what a peer has sent. The error names what that was.
func decode[T any](b []byte, what string) (m T, err error) {
	if err = json.Unmarshal(b, &m); err != nil {
		err = fmt.Errorf("decoding %s: %w", what, err)
	}
	return m, err
}
