// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Header is what a forwarder tells the agent, inside the seal, about a connection.
type Header struct {
	URL        account.EndpointURL `json:"-"`
	ClientAddr string              `json:"client_addr,omitempty"` // host:port of the pod
	TraceID    string              `json:"trace_id,omitempty"`    // "" = none
	// TrustsForwarding reports that the cluster's rules believe the forwarding headers of the pod, a proxy.
	TrustsForwarding bool                `json:"trusts_forwarding,omitempty"`
	Pod              *tunnel.PodIdentity `json:"-"` // as the forwarder states it; nil = unknown
	// Deadline is how long the forwarder waits for the answer, in whole milliseconds; 0 = unknown.
	Deadline time.Duration `json:"-"`
}

// headerFrame is a Header on the wire. Unknown fields are ignored.
type headerFrame struct {
	Header
	URL        string    `json:"url"`
	Pod        *podFrame `json:"pod,omitempty"`
	DeadlineMS uint32    `json:"deadline_ms,omitempty"`
	Token      string    `json:"token,omitempty"` // Token is of TrustOptions, and in no Header.
}

// podFrame is a tunnel.PodIdentity on the wire.
type podFrame struct {
	Namespace      string            `json:"namespace"`
	Name           string            `json:"name"`
	ServiceAccount string            `json:"service_account"`
	Truncated      bool              `json:"truncated,omitempty"`
	Annotations    map[string]string `json:"annotations,omitempty"`
	AnnotationsCut bool              `json:"annotations_cut,omitempty"`
}

// answerFrame is the agent's answer to a header.
type answerFrame struct {
	Opened bool `json:"opened,omitempty"`
	RefusedError
}

func (h Header) frame() headerFrame {
	return headerFrame{Header: h, URL: h.URL.String(), Pod: (*podFrame)(h.Pod),
		DeadlineMS: uint32(min(max(h.Deadline.Milliseconds(), 0), math.MaxUint32))}
}

func (f headerFrame) parse() (Header, error) {
	u, err := account.ParseForwardedURL(f.URL)
	h := Header{URL: u, ClientAddr: f.ClientAddr, TraceID: f.TraceID, Pod: (*tunnel.PodIdentity)(f.Pod),
		Deadline: time.Duration(f.DeadlineMS) * time.Millisecond}
	texts := h.ClientAddr + h.TraceID
	if h.Pod != nil {
		texts += h.Pod.Namespace + h.Pod.Name + h.Pod.ServiceAccount
	}
	if err == nil && strings.ContainsFunc(texts, unicode.IsControl) {
		err = errors.New("a text has a control character")
	}
	if _, invalid := netip.ParseAddrPort(h.ClientAddr); err == nil && h.ClientAddr != "" &&
		(invalid != nil || strings.Contains(h.ClientAddr, ",")) { // a zone may have one; it would be a list in headers
		err = errors.New("client_addr is no address with a port")
	}
	return h, err
}

const (
	frameLimit  = 16 << 10
	framePrefix = 2 // length of what follows, big endian
)

func writeFrame(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil || len(text) > frameLimit {
		return errors.Join(err, fmt.Errorf("%d bytes, at most %d are allowed", len(text), frameLimit))
	}
	frame := binary.BigEndian.AppendUint16(make([]byte, 0, framePrefix+len(text)), uint16(len(text)))
	_, err = w.Write(append(frame, text...))
	return err
}

// readFrame reads what writeFrame has written, and not a byte beyond it.
func readFrame(r io.Reader, v any) error {
	var prefix [framePrefix]byte
	if err := readFull(r, prefix[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint16(prefix[:])
	if size > frameLimit {
		return fmt.Errorf("%d bytes, at most %d are allowed", size, frameLimit)
	}
	text := make([]byte, size)
	if err := readFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// readFull fills b. An end is none that a caller may take for an ordinary one.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

const hintLimit = 128

// Hint returns what the service sends first: the id of the endpoint whose agent it has chosen, after its
// length in one byte.
func Hint(endpointID string) []byte {
	id := endpointID[:min(len(endpointID), hintLimit)]
	return append([]byte{byte(len(id))}, id...)
}

// ReadHint reads what Hint has returned: a hint, which nothing proves, by which a forwarder names
// the agents that it tried. An error is an *UntrustedError or one of the network.
func ReadHint(r io.Reader) (endpointID string, err error) {
	var b [1 + hintLimit]byte
	if err := readFull(r, b[:1]); err != nil {
		return "", err
	}
	text := b[1 : 1+min(b[0], hintLimit)]
	if err := readFull(r, text); err != nil {
		return "", err
	}
	if b[0] == 0 || b[0] > hintLimit || bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", &UntrustedError{Reason: NotSealed, Err: errors.New("the service did not name the agent's endpoint")}
	}
	return string(text), nil
}
