// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The paths of the HTTP API between replicas.
const (
	pathHolders = "/holders"
	pathChanges = "/changes"
	pathPing    = "/ping"
)

// newHTTPClient returns the client for the questions and changes to the replica with the id. Its
// one connection is replaced when it does not answer pings.
func newHTTPClient(p *Peers, id string) *http.Client {
	t := &http.Transport{
		TLSClientConfig: p.identity.clientTLS(id), TLSHandshakeTimeout: handshakeTimeout,
		DialContext: p.opt.Dialer.DialContext, DisableCompression: true, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout,
			WriteByteTimeout: pingTimeout},
	}
	t.Protocols.SetHTTP2(true)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// call sends a request to the peer; out gets the answer's body and may be nil.
func (pr *peer) call(ctx context.Context, method, path string, body []byte, out *[]byte) error {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+pr.address()+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("relay address %q of replica %s: %w", pr.address(), pr.id, err)
	}
	res, err := pr.http.Do(r)
	if err != nil {
		return describeDialError(err, pr.address(), pr.id)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerSize+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer of replica %s: %w", pr.id, err)
	case res.StatusCode/100 != 2:
		return fmt.Errorf("replica %s answered %s: %.200q", pr.id, res.Status, b)
	case len(b) > maxAnswerSize:
		return fmt.Errorf("replica %s answered with more than %d bytes", pr.id, maxAnswerSize)
	case out != nil:
		*out = b
	}
	return nil
}

func (pr *peer) askHolders(ctx context.Context, q Query) ([]Holder, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encoding a question: %w", err)
	}
	var answer []byte
	if err := pr.call(ctx, http.MethodPost, pathHolders, b, &answer); err != nil {
		return nil, err
	}
	return decodeHolders(answer)
}

// api answers the questions and changes of peers, whose certificates have been verified.
type api struct{ peers *Peers }

func (a api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathHolders, a.serveHolders)
	mux.HandleFunc("POST "+pathChanges, a.serveChange)
	mux.HandleFunc("POST "+pathSilent, a.peers.relayed.serveSilent)
	mux.HandleFunc("POST "+pathTraffic, a.serveTraffic)
	mux.HandleFunc("GET "+pathPing, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(pingMessage{a.peers.opt.Local.StoreAge().Milliseconds()})
	})
	return mux
}

func (a api) serveHolders(w http.ResponseWriter, r *http.Request) {
	answer(w, r, decodeQuery, func(q Query) ([]byte, error) {
		all := slices.Clone(a.peers.opt.Local.Holders(q))
		if len(all) > maxHolders {
			slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(a.Connections, b.Connections) })
			all = all[:maxHolders]
		}
		return encodeHolders(all)
	})
}

func (a api) serveTraffic(w http.ResponseWriter, r *http.Request) {
	answer(w, r, func(b []byte) ([]byte, error) { return b, nil }, a.peers.opt.Local.AnswerTraffic)
}

// answer reads a question of another replica and writes the reply to it. An error is one of the
// question.
func answer[Q any](
	w http.ResponseWriter, r *http.Request, decode func([]byte) (Q, error), reply func(Q) ([]byte, error),
) {
	var b []byte
	q, err := readBody(w, r, maxQuestionSize, decode)
	if err == nil {
		b, err = reply(q)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // an error reaches the caller as one
}

// readBody reads and decodes the body of a request.
func readBody[T any](w http.ResponseWriter, r *http.Request, limit int64, decode func([]byte) (T, error)) (T, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		var none T
		return none, fmt.Errorf("reading the request: %w", err)
	}
	return decode(b)
}

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

// decode returns what a peer has sent. The error names what that was.
func decode[T any](b []byte, what string) (m T, err error) {
	if err = json.Unmarshal(b, &m); err != nil {
		err = fmt.Errorf("decoding %s: %w", what, err)
	}
	return m, err
}

// pathTraffic takes questions about what a replica has recorded of its traffic.
const pathTraffic = "/traffic"

// errNotLinked is the error of a peer that is not asked.
var errNotLinked = errors.New("there is no link with the replica, or it does not answer pings")

// TrafficAnswer is a peer's answer to AskTraffic.
type TrafficAnswer struct {
	ReplicaID string
	Body      []byte
	Err       error // it did not answer within a second
}

// AskTraffic asks all peers at once what they have recorded of their traffic, and waits a second at
// most. It returns an answer for each peer, in the order of their ids; those that stop are peers,
// too.
func (p *Peers) AskTraffic(ctx context.Context, question []byte) []TrafficAnswer {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []TrafficAnswer
	var asking sync.WaitGroup
	for id, pr := range p.livePeers() {
		asking.Go(func() {
			a := TrafficAnswer{ReplicaID: id, Err: errNotLinked}
			if pr.canBeAsked() {
				a.Err = pr.call(ctx, http.MethodPost, pathTraffic, question, &a.Body)
			}
			if a.Err != nil {
				p.log.Debug("a replica did not answer a question about its traffic", "replica", id, "err", a.Err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b TrafficAnswer) int { return cmp.Compare(a.ReplicaID, b.ReplicaID) })
	return all
}

// LastLeft returns when a replica last left the registry, because it stopped or died: what it had
// recorded is lost. Zero = none has since New.
func (p *Peers) LastLeft() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastLeft
}

// canBeAsked reports whether the peer has a link and answers pings.
func (pr *peer) canBeAsked() bool {
	pr.peers.mu.Lock()
	defer pr.peers.mu.Unlock()
	return pr.link != nil && !pr.isSilentLocked()
}
