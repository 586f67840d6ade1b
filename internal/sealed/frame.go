// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Header is what a forwarder tells the agent, inside the seal, about a connection.
type Header struct {
	URL        account.EndpointURL
	ClientAddr string              // host:port of the pod
	TraceID    string              // "" = none
	Pod        *tunnel.PodIdentity // names of the calling pod, as the forwarder states them; nil = unknown
	Deadline   time.Duration       // how long the forwarder waits for the answer, in whole milliseconds; 0 = unknown
}

// headerFrame is a Header on the wire. Unknown fields are ignored.
type headerFrame struct {
	URL        string    `json:"url"`
	ClientAddr string    `json:"client_addr,omitempty"`
	TraceID    string    `json:"trace_id,omitempty"`
	Pod        *podFrame `json:"pod,omitempty"`
	DeadlineMS uint32    `json:"deadline_ms,omitempty"`
}

type podFrame struct {
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	ServiceAccount string `json:"service_account"`
}

// answerFrame is the agent's answer to a header.
type answerFrame struct {
	Opened  bool   `json:"opened,omitempty"`
	Refused string `json:"refused,omitempty"` // code
	Text    string `json:"text,omitempty"`
}

func (h Header) frame() headerFrame {
	f := headerFrame{URL: h.URL.String(), ClientAddr: h.ClientAddr, TraceID: h.TraceID,
		DeadlineMS: uint32(min(max(h.Deadline.Milliseconds(), 0), math.MaxUint32))}
	if h.Pod != nil {
		f.Pod = &podFrame{h.Pod.Namespace, h.Pod.Name, h.Pod.ServiceAccount}
	}
	return f
}

func (f headerFrame) parse() (Header, error) {
	u, err := account.ParseEndpointURL(f.URL)
	if err != nil {
		return Header{}, err
	}
	h := Header{URL: u, ClientAddr: f.ClientAddr, TraceID: f.TraceID,
		Deadline: time.Duration(f.DeadlineMS) * time.Millisecond}
	texts := []string{f.ClientAddr, f.TraceID}
	if f.Pod != nil {
		h.Pod = &tunnel.PodIdentity{Namespace: f.Pod.Namespace, Name: f.Pod.Name,
			ServiceAccount: f.Pod.ServiceAccount}
		texts = append(texts, f.Pod.Namespace, f.Pod.Name, f.Pod.ServiceAccount)
	}
	if strings.ContainsFunc(strings.Join(texts, ""), unicode.IsControl) {
		return Header{}, errors.New("a text has a control character")
	}
	return h, nil
}

const (
	frameLimit  = 16 << 10
	framePrefix = 2 // length of what follows, big endian
)

func writeFrame(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err == nil && len(text) > frameLimit {
		err = fmt.Errorf("%d bytes, at most %d are allowed", len(text), frameLimit)
	}
	if err == nil {
		frame := binary.BigEndian.AppendUint16(make([]byte, 0, framePrefix+len(text)), uint16(len(text)))
		_, err = w.Write(append(frame, text...))
	}
	return err
}

// readFrame reads what writeFrame has written, and not a byte beyond it.
func readFrame(r io.Reader, v any) error {
	var prefix [framePrefix]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return noEOF(err)
	}
	size := binary.BigEndian.Uint16(prefix[:])
	if size > frameLimit {
		return fmt.Errorf("%d bytes, at most %d are allowed", size, frameLimit)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return noEOF(err)
	}
	return json.Unmarshal(text, v)
}

// noEOF replaces an ordinary end, which is none within the first flight.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

const hintLimit = 128

// writeHint sends the agent's session id, preceded by its length in one byte.
func writeHint(w io.Writer, sessionID string) error {
	if !validHint(sessionID) {
		return fmt.Errorf("session id %q: not between 1 and %d printable ASCII characters", sessionID, hintLimit)
	}
	_, err := w.Write(append([]byte{byte(len(sessionID))}, sessionID...))
	return err
}

func readHint(r io.Reader) (sessionID string, err error) {
	var b [1 + hintLimit]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return "", noEOF(err)
	}
	if b[0] == 0 || b[0] > hintLimit {
		return "", &UntrustedError{Reason: NotSealed, Err: errors.New("it sent no session id")}
	}
	text := b[1 : 1+b[0]]
	if _, err := io.ReadFull(r, text); err != nil {
		return "", noEOF(err)
	}
	if !validHint(string(text)) {
		return "", &UntrustedError{Reason: NotSealed, Err: errors.New("it sent no session id")}
	}
	return string(text), nil
}

func validHint(text string) bool {
	return text != "" && len(text) <= hintLimit &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
