// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/peers"
)

// Peers are the other replicas. *peers.Peers implements it.
type Peers interface {
	// AskTraffic passes a question to each of them, whose Recorder.Answer answers it.
	AskTraffic(ctx context.Context, question []byte) []peers.TrafficAnswer
	// LastLeft returns when one last left, with what it had recorded.
	LastLeft() time.Time
}

// UsePeers makes the Recorder ask the other replicas. It is called before anything is recorded.
func (r *Recorder) UsePeers(replica string, p Peers) { r.replica, r.peers = replica, p }

// question is what replicas ask each other. One of Series, Recent, Rates and Logins is set.
type question struct {
	AccountID string          `json:"account_id"`
	Series    *seriesQuestion `json:"series,omitempty"`
	Recent    *recentQuestion `json:"recent,omitempty"`
	Rates     *ratesQuestion  `json:"rates,omitempty"`
	Logins    *loginsQuestion `json:"logins,omitempty"`
}

// seriesQuestion asks for the points of the steps from First to Last.
type seriesQuestion struct {
	Key    Key    `json:"key"`
	Window Window `json:"window"`
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
}

type recentQuestion struct {
	EndpointID  string `json:"endpoint_id"`
	FailingOnly bool   `json:"failing_only,omitempty"`
	Limit       int    `json:"limit"`
}

// ratesQuestion asks for the counts of the short steps from First to Last.
type ratesQuestion struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

type loginsQuestion struct {
	Limit int `json:"limit"`
}

// answer is that of one replica.
type answer struct {
	Since    time.Time         `json:"since"`
	Left     time.Time         `json:"left,omitzero"` // when another replica last left
	Summed   bool              `json:"summed,omitempty"`
	Points   []byte            `json:"points,omitempty"` // results of appendPoint, from First
	Requests []Request         `json:"requests,omitempty"`
	Counts   map[Key]rateCount `json:"counts,omitempty"`
	Logins   []LoginFailure    `json:"logins,omitempty"`
}

// complete returns since when neither this replica nor one that has left lacks anything.
func (a *answer) complete() time.Time {
	if a.Left.After(a.Since) {
		return a.Left
	}
	return a.Since
}

// rateCount is what ended in the steps of a ratesQuestion.
type rateCount struct {
	Ended  uint64 `json:"ended"`
	Failed uint64 `json:"failed"`
}

// Limits of what is asked for.
const (
	maxRequests = 2 * ringSlots
	settleTime  = time.Second // after the end of a step, until all replicas have added it
)

// Series returns the traffic of an object of the account, of all replicas.
func (r *Recorder) Series(ctx context.Context, accountID string, k Key, w Window) (Series, Coverage) {
	n, step := w.Steps()
	last := stepBefore(r.opt.Now().Add(-settleTime), step)
	q := seriesQuestion{Key: k, Window: w, First: last - int64(n) + 1, Last: last}
	answers, c := r.askAll(ctx, question{AccountID: accountID, Series: &q})
	sums := make([]counts, n)
	var one counts
	for i := range answers {
		for data := answers[i].Points; len(data) > 0; {
			offset, rest, err := readPoint(data, &one)
			if err != nil || offset >= uint64(n) {
				break // another version counts in another way
			}
			sums[offset].add(&one)
			data = rest
		}
	}
	s := Series{Start: time.Unix(0, q.First*int64(step)).UTC(), Step: step, Points: make([]Point, n)}
	for i := range sums {
		s.Points[i] = sums[i].point()
	}
	return s, c
}

// Recent returns the last requests to an endpoint of the account, or the last failing ones: the
// newest first, limit at most.
func (r *Recorder) Recent(
	ctx context.Context, accountID, endpointID string, failingOnly bool, limit int,
) ([]Request, Coverage) {
	q := recentQuestion{EndpointID: endpointID, FailingOnly: failingOnly, Limit: min(limit, maxRequests)}
	answers, c := r.askAll(ctx, question{AccountID: accountID, Recent: &q})
	var all []Request
	for i := range answers {
		all = append(all, answers[i].Requests...)
	}
	return newestRequests(all, limit), c
}

// Rates returns what ended in the last full minute, a second: of OfAccount, and of each endpoint and
// backend of the account that had traffic.
func (r *Recorder) Rates(ctx context.Context, accountID string) (map[Key]Rate, Coverage) {
	last := stepBefore(r.opt.Now().Add(-settleTime), shortStep)
	q := ratesQuestion{First: last - stepsAMinute + 1, Last: last}
	answers, c := r.askAll(ctx, question{AccountID: accountID, Rates: &q})
	rates := map[Key]Rate{OfAccount: {}}
	for i := range answers {
		for k, n := range answers[i].Counts {
			sum := rates[k]
			sum.PerSecond += float64(n.Ended) / 60
			sum.FailingPerSecond += float64(n.Failed) / 60
			rates[k] = sum
		}
	}
	return rates, c
}

// LoginFailures returns the failed logins of the account's endpoints within a day: the newest first,
// limit at most.
func (r *Recorder) LoginFailures(ctx context.Context, accountID string, limit int) ([]LoginFailure, Coverage) {
	q := loginsQuestion{Limit: min(limit, maxAccountFailures)}
	answers, c := r.askAll(ctx, question{AccountID: accountID, Logins: &q})
	var all []LoginFailure
	for i := range answers {
		all = append(all, answers[i].Logins...)
	}
	return newestFailures(all, limit), c
}

// askAll asks this replica and the others.
func (r *Recorder) askAll(ctx context.Context, q question) ([]answer, Coverage) {
	answers := []answer{r.answer(q)}
	c := Coverage{Since: answers[0].Since, Complete: answers[0].complete(), Summed: answers[0].Summed}
	if r.peers == nil {
		return answers, c
	}
	body, err := json.Marshal(q)
	if err != nil {
		panic(fmt.Sprintf("traffic: encoding a question: %v", err)) // strings and numbers always encode
	}
	for _, of := range r.peers.AskTraffic(ctx, body) {
		var a answer
		if of.Err != nil || json.Unmarshal(of.Body, &a) != nil {
			c.Missing = append(c.Missing, of.ReplicaID)
			continue
		}
		answers = append(answers, a)
		if a.Since.Before(c.Since) {
			c.Since = a.Since
		}
		if a.complete().After(c.Complete) {
			c.Complete = a.complete()
		}
		c.Summed = c.Summed || a.Summed
	}
	slices.Sort(c.Missing)
	return answers, c
}

// Answer answers a question of another replica about what this one has recorded.
func (r *Recorder) Answer(body []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("decoding a question about traffic: %w", err)
	}
	b, err := json.Marshal(r.answer(q))
	if err != nil {
		return nil, fmt.Errorf("encoding an answer about traffic: %w", err)
	}
	return b, nil
}
