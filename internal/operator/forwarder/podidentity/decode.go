// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Numbers of the fields that are read, from generated.proto in k8s.io/api/core/v1 and
// k8s.io/apimachinery; they never change. Other fields are skipped without a copy: pods of 10 KB
// each would otherwise be 40 MB of garbage for a list of 4,000.
const (
	unknownRaw = 2 // runtime.Unknown

	listMetadata = 1 // core.PodList
	listItems    = 2

	podMetadata = 1 // core.Pod
	podSpec     = 2
	podStatus   = 3

	maxMessage  = 16 << 20 // bytes of one pod or event; etcd accepts less than 2 MiB
	maxInterned = 256      // keys of labels that the decoder interns
)

// magic is the prefix of every object that the API server encodes.
var magic = []byte("k8s\x00")

var errFormat = errors.New("the API server's answer is not in its own format")

// decoder reads pods from the API server's responses. It reuses one buffer and one pod, so results
// are valid until the next call.
type decoder struct {
	selected Annotations
	buffer   []byte
	pod      corev1.Pod
	labels   map[string]string // of pod
	interned map[string]string
}

// list reads a PodList, calls each with its pods, and returns the list's metadata.
func (d *decoder) list(answer io.Reader, each func(*corev1.Pod)) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	in := bufio.NewReader(answer)
	if start, err := d.read(in, uint64(len(magic))); err != nil || !bytes.Equal(start, magic) {
		return meta, errors.Join(errFormat, err)
	}
	found := false
	err := d.messages(in, func(number protowire.Number, size uint64) error {
		if number != unknownRaw {
			_, err := d.read(in, size)
			return err
		}
		found = true
		list := &io.LimitedReader{R: in, N: int64(size)}
		err := d.pods(list, &meta, each)
		if err == nil && list.N > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err == nil && !found {
		err = errFormat
	}
	return meta, err
}

func (d *decoder) pods(list io.Reader, meta *metav1.ListMeta, each func(*corev1.Pod)) error {
	in := bufio.NewReader(list)
	return d.messages(in, func(number protowire.Number, size uint64) error {
		message, err := d.read(in, size)
		if err != nil {
			return err
		}
		switch number {
		case listMetadata:
			return readListMeta(message, meta)
		case listItems:
			if err := d.readPod(message); err != nil {
				return err
			}
			each(&d.pod)
		}
		return nil
	})
}

// messages calls visit for every message field of the message that in holds, up to its end. visit
// must read size bytes.
func (d *decoder) messages(in *bufio.Reader, visit func(number protowire.Number, size uint64) error) error {
	for {
		tag, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		number, kind := protowire.DecodeTag(tag)
		if err != nil || kind != protowire.BytesType {
			return errors.Join(errFormat, err)
		}
		size, err := binary.ReadUvarint(in)
		if err != nil {
			return errors.Join(errFormat, err)
		}
		if err := visit(number, size); err != nil {
			return err
		}
	}
}

// read returns the next bytes, in a buffer that the next call reuses.
func (d *decoder) read(in io.Reader, size uint64) ([]byte, error) {
	if size > maxMessage {
		return nil, fmt.Errorf("%w: a message of %d bytes", errFormat, size)
	}
	if uint64(cap(d.buffer)) < size {
		d.buffer = make([]byte, size, size+size/4)
	}
	message := d.buffer[:size]
	if _, err := io.ReadFull(in, message); err != nil {
		return nil, err
	}
	return message, nil
}

// event reads one frame of a watch. For an error event it returns the Status.
func (d *decoder) event(in io.Reader) (watch.EventType, *corev1.Pod, *metav1.Status, error) {
	head, err := d.read(in, 4)
	if err != nil {
		return "", nil, nil, err
	}
	frame, err := d.read(in, uint64(binary.BigEndian.Uint32(head)))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // a watch cannot end between the size and the frame
	}
	if err != nil {
		return "", nil, nil, err
	}
	kind, content, err := openEvent(frame)
	switch {
	case err != nil:
		return "", nil, nil, err
	case kind == watch.Error:
		status := &metav1.Status{}
		return kind, nil, status, status.Unmarshal(content)
	}
	return kind, &d.pod, nil, d.readPod(content)
}

// openEvent returns the type of a metav1.WatchEvent and the message of its object.
func openEvent(frame []byte) (kind watch.EventType, content []byte, err error) {
	text, err := field(frame, 1)
	object, objectErr := field(frame, 2) // runtime.RawExtension
	raw, rawErr := field(object, 1)      // with the magic, runtime.Unknown
	message, found := bytes.CutPrefix(raw, magic)
	content, contentErr := field(message, unknownRaw)
	err = errors.Join(err, objectErr, rawErr, contentErr)
	if err == nil && !found {
		err = errFormat
	}
	return watch.EventType(text), content, err
}

// field returns the last value of a field of a message; nil if it has none.
func field(message []byte, which protowire.Number) (found []byte, err error) {
	err = fields(message, func(number protowire.Number, value []byte) error {
		if number == which {
			found = value
		}
		return nil
	})
	return found, err
}

// fields calls visit for every field of a message, with the bytes of its value.
func fields(message []byte, visit func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errors.Join(errFormat, protowire.ParseError(n))
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return errors.Join(errFormat, protowire.ParseError(n))
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message)
		}
		if err := visit(number, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
