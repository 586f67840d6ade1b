// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

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
