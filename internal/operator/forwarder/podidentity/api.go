// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// api is the part of the API server that is used. Pods are valid until the function that gets them
// returns.
type api interface {
	// List calls each with the pods of one page, and returns the page's metadata.
	List(ctx context.Context, o metav1.ListOptions, each func(*corev1.Pod)) (metav1.ListMeta, error)
	// Watch starts a watch, which ends with ctx.
	Watch(ctx context.Context, o metav1.ListOptions) (events, error)
}

// events are the events of one watch.
type events interface {
	// Next waits for the next event; the pod is valid until the next call. The error is io.EOF when
	// the watch has ended.
	Next() (watch.EventType, *corev1.Pod, error)
	Close() error
}

// server is the API server of a real cluster.
type server struct {
	rest     rest.Interface
	selected Annotations
}

func newServer(config *rest.Config, selected Annotations) (*server, error) {
	c := rest.CopyConfig(config)
	c.ContentType, c.AcceptContentTypes = protobuf, protobuf
	core, err := coreclient.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("making client for pods: %w", err)
	}
	return &server{core.RESTClient(), selected}, nil
}

func (s *server) get(ctx context.Context, o metav1.ListOptions) (io.ReadCloser, error) {
	return s.rest.Get().Resource("pods").VersionedParams(&o, scheme.ParameterCodec).Stream(ctx)
}

// List implements api.
func (s *server) List(ctx context.Context, o metav1.ListOptions, each func(*corev1.Pod)) (metav1.ListMeta, error) {
	answer, err := s.get(ctx, o)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer func() { _ = answer.Close() }()
	d := decoder{selected: s.selected}
	return d.list(answer, each)
}

// Watch implements api.
func (s *server) Watch(ctx context.Context, o metav1.ListOptions) (events, error) {
	o.Watch = true
	answer, err := s.get(ctx, o)
	if err != nil {
		return nil, err
	}
	return &stream{Closer: answer, in: bufio.NewReader(answer), decoder: decoder{selected: s.selected}}, nil
}

// stream is the response to a watch.
type stream struct {
	io.Closer
	in      *bufio.Reader
	decoder decoder
}

// Next implements events.
func (s *stream) Next() (watch.EventType, *corev1.Pod, error) {
	kind, pod, status, err := s.decoder.event(s.in)
	if err == nil && status != nil {
		err = apierrors.FromObject(status)
	}
	return kind, pod, err
}
