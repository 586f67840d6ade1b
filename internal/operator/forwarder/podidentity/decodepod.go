// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readPod reads the pod's fields that the table needs, and its version, into d.pod.
func (d *decoder) readPod(message []byte) error {
	clear(d.labels)
	d.pod = corev1.Pod{}
	return fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case podMetadata:
			return d.readMetadata(value)
		case podSpec:
			return d.readSpec(value)
		case podStatus:
			return d.readStatus(value)
		}
		return nil
	})
}

func (d *decoder) readMetadata(message []byte) error {
	return fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			d.pod.Name = string(value)
		case 3:
			d.pod.Namespace = string(value)
		case 6:
			d.pod.ResourceVersion = string(value)
		case 9:
			d.pod.DeletionTimestamp = &metav1.Time{}
		case 11:
			return d.readLabel(value)
		case 12:
			return d.readAnnotation(value)
		}
		return nil
	})
}

func (d *decoder) readLabel(message []byte) error {
	key, err := field(message, 1)
	value, valueErr := field(message, 2)
	if err := errors.Join(err, valueErr); err != nil {
		return err
	}
	if d.labels == nil {
		d.labels = map[string]string{}
	}
	d.pod.Labels = d.labels
	d.labels[d.intern(key)] = string(value)
	return nil
}

// intern returns a label's key as text, without a copy if it was read lately: most pods have the
// same keys.
func (d *decoder) intern(text []byte) string {
	if s, ok := d.interned[string(text)]; ok {
		return s
	}
	if d.interned == nil || len(d.interned) >= maxInterned {
		d.interned = make(map[string]string, maxInterned)
	}
	s := string(text)
	d.interned[s] = s
	return s
}

// readAnnotation keeps a selected annotation.
func (d *decoder) readAnnotation(message []byte) error {
	if len(d.selected) == 0 {
		return nil
	}
	name, err := field(message, 1)
	text, textErr := field(message, 2)
	if err := errors.Join(err, textErr); err != nil || !d.selected.matches(string(name)) {
		return err
	}
	if d.pod.Annotations == nil {
		d.pod.Annotations = map[string]string{}
	}
	d.pod.Annotations[string(name)] = string(text)
	return nil
}

func (d *decoder) readSpec(message []byte) error {
	return fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case 8:
			d.pod.Spec.ServiceAccountName = string(value)
		case 11:
			set, _ := protowire.ConsumeVarint(value)
			d.pod.Spec.HostNetwork = set != 0
		}
		return nil
	})
}

func (d *decoder) readStatus(message []byte) error {
	s := &d.pod.Status
	return fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			s.Phase = corev1.PodPhase(value)
		case 5:
			s.HostIP = string(value)
		case 6:
			s.PodIP = string(value)
		case 12:
			ip, err := field(value, 1)
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: string(ip)})
			return err
		case 16:
			ip, err := field(value, 1)
			s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: string(ip)})
			return err
		}
		return nil
	})
}

func readListMeta(message []byte, meta *metav1.ListMeta) error {
	return fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case 2:
			meta.ResourceVersion = string(value)
		case 3:
			meta.Continue = string(value)
		}
		return nil
	})
}
