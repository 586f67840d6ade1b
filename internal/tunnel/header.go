// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// OpenHeader is sent first on every data stream. Encoded it is at most 4 KiB.
type OpenHeader struct {
	EndpointID string        // at most 128 bytes; "" = the endpoint at the URL, which is whole then
	Host       string        // the host of the endpoint's URL, at most 255 bytes
	Port       int           // the port of the endpoint's URL
	Scheme     string        // the scheme of the endpoint's URL, at most 16 bytes; "" = unknown
	ClientAddr string        // host:port of the pod or client, at most 128 bytes
	TraceID    string        // at most 128 bytes
	Deadline   time.Duration // how long the opener waits for OPENED, in whole milliseconds; 0 = unknown
	Pod        *PodIdentity  // calling pod, as the forwarder states it; nil = unknown
	RelayID    uint64        // number that an opening replica gave the stream; 0 = none

	// TrustsForwarding reports that the opener, a forwarder, was told to believe the forwarding
	// headers of its client.
	TrustsForwarding bool

	// Sealed reports that the stream carries a connection which its opener seals; see
	// FeatureSealed.
	Sealed bool
	// Tried are ids of endpoints whose agents were tried for the same connection, with commas between,
	// at most 512 bytes: none of them serves it. It is left out if it does not fit.
	Tried string
	// PairID is the number of the parked connection that carries the bytes of a sealed stream; 0 = the
	// multiplexer does. Open sets it.
	PairID uint64
	// SpareID is the number of a spare: of a sealed stream that has no client yet, or, in the header of one
	// that is not sealed, of the spare whose client it describes; 0 = none. See FeatureSpares.
	SpareID uint64

	// BytesFollow is not sent. It makes Open expect that the caller writes at once: the header is
	// sent together with those bytes, or within 5 ms.
	BytesFollow bool
}

// PodIdentity is the calling pod as the forwarder identifies it. Each of its names is truncated at
// 253 bytes when it is sent.
type PodIdentity struct {
	Namespace      string
	Name           string
	ServiceAccount string
	Truncated      bool // Truncated reports that a name was too long for the header and was cut.

	// Annotations are the pod's annotations that the forwarder's operator passes to policies; nil =
	// unknown. They must not be changed. If they have more than 2 KiB, none are sent: a part of
	// them could mean something else.
	Annotations map[string]string
	// AnnotationsCut reports that the pod has annotations, which were too long.
	AnnotationsCut bool
}

const (
	headerVersion   = 1
	headerLimit     = 4 << 10
	headerPrefix    = 4    // version, flags, length
	flagTruncated   = 0x01 // a name of the pod is truncated
	flagAnnotations = 0x02 // the pod's annotations were too long and are not sent
	flagForwarding  = 0x04 // TrustsForwarding
	flagSealed      = 0x08 // Sealed
	identityLimit   = 253
	shortValueLimit = 128
	hostLimit       = 255
	schemeLimit     = 16
	triedLimit      = 2048 // 64 ids
)

// The fields' tags. Unknown ones are skipped.
const (
	tagEndpointID = iota + 1
	tagHost
	tagPort
	tagClientAddr
	tagTraceID
	tagDeadline
	tagPodNamespace
	tagPodName
	tagPodServiceAccount
	tagScheme
	tagPodAnnotations
	tagRelayID
	tagTried
	tagPairID
	tagSpareID
	tagEnd // one past the last that this version knows
)

// textTags are the tags of the string fields, in the order in which they are sent.
var textTags = [...]byte{tagEndpointID, tagHost, tagClientAddr, tagTraceID, tagScheme, tagPodNamespace, tagPodName,
	tagPodServiceAccount, tagTried}

// textField is a string field of the header.
type textField struct {
	name  string
	limit int
	value *string
}

// textField returns the string field with this tag. Its value is nil if there is none, or if it is
// the pod's and Pod is nil.
func (h *OpenHeader) textField(tag byte) textField {
	switch tag {
	case tagEndpointID:
		return textField{"endpoint id", shortValueLimit, &h.EndpointID}
	case tagHost:
		return textField{"host", hostLimit, &h.Host}
	case tagClientAddr:
		return textField{"client address", shortValueLimit, &h.ClientAddr}
	case tagTraceID:
		return textField{"trace id", shortValueLimit, &h.TraceID}
	case tagScheme:
		return textField{"scheme", schemeLimit, &h.Scheme}
	case tagTried:
		return textField{"list of tried endpoints", triedLimit, &h.Tried}
	}
	if h.Pod == nil {
		return textField{}
	}
	switch tag {
	case tagPodNamespace:
		return textField{"pod namespace", identityLimit, &h.Pod.Namespace}
	case tagPodName:
		return textField{"pod name", identityLimit, &h.Pod.Name}
	case tagPodServiceAccount:
		return textField{"pod service account", identityLimit, &h.Pod.ServiceAccount}
	}
	return textField{}
}

// encode returns the wire format of h.
func (h OpenHeader) encode() ([]byte, error) {
	if !h.namesEndpoint() {
		return nil, errors.New("stream header: the endpoint id is empty")
	}
	if h.Port < 0 || h.Port > math.MaxUint16 {
		return nil, fmt.Errorf("stream header: port %d is not between 0 and 65535", h.Port)
	}
	var flags byte
	if h.Pod != nil {
		pod := truncateIdentity(*h.Pod)
		h.Pod = &pod
		if pod.Truncated {
			flags |= flagTruncated
		}
		if pod.AnnotationsCut {
			flags |= flagAnnotations
		}
	}
	if h.TrustsForwarding {
		flags |= flagForwarding
	}
	if h.Sealed {
		flags |= flagSealed
	}
	b := make([]byte, headerPrefix, 256)
	for _, tag := range textTags {
		f := h.textField(tag)
		if f.value == nil || tag == tagTried && (*f.value == "" || len(*f.value) > triedLimit) {
			continue
		}
		if err := f.check(*f.value); err != nil {
			return nil, err
		}
		b = append(b, tag)
		b = binary.BigEndian.AppendUint16(b, uint16(len(*f.value)))
		b = append(b, *f.value...)
	}
	if h.Pod != nil && h.Pod.Annotations != nil {
		b = appendAnnotations(b, h.Pod.Annotations)
	}
	b = append(b, tagPort, 0, 2)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Port))
	if ms := min(h.Deadline.Milliseconds(), math.MaxUint32); ms > 0 {
		b = append(b, tagDeadline, 0, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(ms))
	}
	for i, id := range [...]uint64{h.RelayID, h.PairID, h.SpareID} {
		if tag := [...]byte{tagRelayID, tagPairID, tagSpareID}[i]; id != 0 {
			b = binary.BigEndian.AppendUint64(append(b, tag, 0, 8), id)
		}
	}
	if len(b) > headerLimit && h.Tried != "" {
		h.Tried = ""
		return h.encode()
	}
	b[0], b[1] = headerVersion, flags
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-headerPrefix))
	return b, nil
}

// namesEndpoint reports whether the header has an endpoint's id, or a whole URL.
func (h *OpenHeader) namesEndpoint() bool {
	return h.EndpointID != "" || h.Scheme != "" && h.Host != "" && h.Port != 0
}

func (f textField) check(v string) error {
	if len(v) > f.limit {
		return fmt.Errorf("stream header: the %s has %d bytes, at most %d fit", f.name, len(v), f.limit)
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] == 0x7f {
			return fmt.Errorf("stream header: the %s has a control character", f.name)
		}
	}
	return nil
}

func truncateIdentity(p PodIdentity) PodIdentity {
	for _, v := range []*string{&p.Namespace, &p.Name, &p.ServiceAccount} {
		if cut := truncateText(*v, identityLimit); len(cut) < len(*v) {
			*v, p.Truncated = cut, true
		}
	}
	if len(p.Annotations) > maxAnnotations || annotationsSize(p.Annotations) > maxAnnotationBytes {
		p.Annotations, p.AnnotationsCut = nil, true
	}
	return p
}

// truncateText truncates a text at limit bytes, but not within a rune.
func truncateText(v string, limit int) string {
	if len(v) <= limit {
		return v
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(v[end]) {
		end--
	}
	return v[:end]
}

// readHeader reads a header, and not a byte beyond it. It calls needs with the number of bytes
// before each read.
func readHeader(r io.Reader, needs func(n int)) (OpenHeader, error) {
	var prefix [headerPrefix]byte
	needs(len(prefix))
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return OpenHeader{}, fmt.Errorf("reading a stream header: %w", err)
	}
	if prefix[0] != headerVersion {
		return OpenHeader{},
			fmt.Errorf("stream header: version %d is unknown, this side speaks version %d: update the older side",
				prefix[0],
				headerVersion)
	}
	size := int(binary.BigEndian.Uint16(prefix[2:]))
	if size > headerLimit-headerPrefix {
		return OpenHeader{}, fmt.Errorf("stream header: %d bytes of fields, at most %d are allowed", size,
			headerLimit-headerPrefix)
	}
	fields := make([]byte, size)
	needs(size)
	if _, err := io.ReadFull(r, fields); err != nil {
		return OpenHeader{}, fmt.Errorf("reading a stream header: %w", err)
	}
	return parseFields(fields, prefix[1])
}

func parseFields(b []byte, flags byte) (OpenHeader, error) {
	h := OpenHeader{TrustsForwarding: flags&flagForwarding != 0, Sealed: flags&flagSealed != 0}
	var pod PodIdentity
	h.Pod = &pod
	known := 0 // bit set of the tags
	for len(b) > 0 {
		if len(b) < 3 || len(b)-3 < int(binary.BigEndian.Uint16(b[1:])) {
			return OpenHeader{}, errors.New("stream header: a field is cut off")
		}
		tag, value := b[0], b[3:3+int(binary.BigEndian.Uint16(b[1:]))]
		b = b[3+len(value):]
		if tag == 0 || tag >= tagEnd {
			continue
		}
		if known&(1<<tag) != 0 {
			return OpenHeader{}, fmt.Errorf("stream header: field %d appears twice", tag)
		}
		known |= 1 << tag
		if err := h.setField(tag, value); err != nil {
			return OpenHeader{}, err
		}
	}
	if !h.namesEndpoint() {
		return OpenHeader{}, errors.New("stream header: the endpoint id is missing")
	}
	if known&(1<<tagPodNamespace|1<<tagPodName|1<<tagPodServiceAccount) == 0 {
		h.Pod = nil
	} else {
		pod.Truncated, pod.AnnotationsCut = flags&flagTruncated != 0, flags&flagAnnotations != 0
	}
	return h, nil
}

func (h *OpenHeader) setField(tag byte, value []byte) error {
	switch {
	case tag == tagPort && len(value) == 2:
		h.Port = int(binary.BigEndian.Uint16(value))
		return nil
	case tag == tagDeadline && len(value) == 4:
		h.Deadline = time.Duration(binary.BigEndian.Uint32(value)) * time.Millisecond
		return nil
	case tag == tagRelayID && len(value) == 8:
		h.RelayID = binary.BigEndian.Uint64(value)
		return nil
	case tag == tagPairID && len(value) == 8:
		h.PairID = binary.BigEndian.Uint64(value)
		return nil
	case tag == tagSpareID && len(value) == 8:
		h.SpareID = binary.BigEndian.Uint64(value)
		return nil
	case tag == tagPodAnnotations:
		all, err := parseAnnotations(value)
		h.Pod.Annotations = all
		return err
	}
	if f := h.textField(tag); f.value != nil {
		*f.value = string(value)
		return f.check(*f.value)
	}
	return fmt.Errorf("stream header: field %d has %d bytes", tag, len(value))
}

// Limits of a pod's annotations in a stream's header. They fit together with all other fields at
// their limits.
const (
	maxAnnotationBytes = 2 << 10 // bytes of all keys and values
	maxAnnotations     = 128
	maxAnnotationField = maxAnnotationBytes + maxAnnotations*annotationPrefix // bytes of the field's value

	annotationPrefix = 4 // the lengths of a key and its value
)

// appendAnnotations appends the field of the pod's annotations: pairs of key and value, sorted by
// key, each string preceded by its length in two bytes.
func appendAnnotations(b []byte, all map[string]string) []byte {
	b = append(b, tagPodAnnotations)
	b = binary.BigEndian.AppendUint16(b, uint16(annotationsSize(all)+len(all)*annotationPrefix))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		for _, text := range []string{key, all[key]} {
			b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
			b = append(b, text...)
		}
	}
	return b
}

// annotationsSize returns the length of all keys and values in bytes.
func annotationsSize(all map[string]string) (size int) {
	for key, value := range all {
		size += len(key) + len(value)
	}
	return size
}

func parseAnnotations(b []byte) (map[string]string, error) {
	all := map[string]string{}
	next := func() (s string, ok bool) {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return "", false
		}
		end := 2 + int(binary.BigEndian.Uint16(b))
		s, b = string(b[2:end]), b[end:]
		return s, true
	}
	if len(b) > maxAnnotationField {
		return nil, errors.New("stream header: the pod's annotations are too long")
	}
	for len(b) > 0 {
		key, ok := next()
		if !ok {
			return nil, errors.New("stream header: the pod's annotations are cut off")
		}
		value, ok := next()
		if !ok {
			return nil, errors.New("stream header: the pod's annotations are cut off")
		}
		if _, twice := all[key]; twice {
			return nil, errors.New("stream header: an annotation of the pod appears twice")
		}
		all[key] = value
	}
	return all, nil
}
