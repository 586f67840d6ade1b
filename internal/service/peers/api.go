// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
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

// sendChange returns nil when the peer has applied the change.
func (pr *peer) sendChange(ctx context.Context, c Change) error {
	parts := slices.Collect(slices.Chunk(c.IDs, maxChangeIDs))
	if len(parts) == 0 {
		parts = [][]string{nil}
	}
	for _, ids := range parts {
		c.IDs = ids
		b, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encoding a change: %w", err)
		}
		if err := pr.call(ctx, http.MethodPost, pathChanges, b, nil); err != nil {
			return err
		}
	}
	return nil
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

func (a api) serveChange(w http.ResponseWriter, r *http.Request) {
	p := a.peers
	c, err := readBody(w, r, maxChangeSize, decodeChange)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.opt.Lease+publishGrace)
	defer cancel()
	err = p.opt.Local.Apply(ctx, c)
	p.forget(c)
	if err != nil {
		p.log.Warn("a replica's change could not be applied", "kind", c.Kind, "account", c.AccountID, "err", err)
		http.Error(w, "the change could not be applied", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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
