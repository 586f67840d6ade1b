// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestStream_SendsHeadAndFlushes(t *testing.T) {
	t.Parallel()
	written := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := NewCall(w, r, time.Now())
		stream, err := call.StartStream("text/event-stream", time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		defer stream.Close()
		<-written // the client has the head
		if _, err := stream.Write([]byte("one")); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	res, err := http.Get(srv.URL)
	must.Succeed(t, err)
	defer res.Body.Close()
	close(written)
	body, err := io.ReadAll(res.Body)
	if string(body) != "one" || err != nil || res.Header.Get("Content-Type") != "text/event-stream" || !res.Close {
		t.Errorf("body %q, %v, head %v", body, err, res.Header)
	}
}

func TestStream_ErrorsAreClientGone(t *testing.T) {
	t.Parallel()
	call := NewCall(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), time.Now())
	var gone ClientGoneError
	if _, err := call.StartStream("text/plain", time.Minute); !errors.As(err, &gone) ||
		!errors.Is(err, http.ErrNotSupported) {
		t.Errorf("a writer without deadlines: %v", err)
	}
}

func TestStreamLimit_LimitsEachAccount(t *testing.T) {
	t.Parallel()
	limit := StreamLimit{Max: 1}
	release, ok := limit.Acquire("ac-1")
	if !ok {
		t.Fatal("the first stream was refused")
	}
	if _, ok := limit.Acquire("ac-1"); ok {
		t.Error("a second stream of one account was accepted")
	}
	if _, ok := limit.Acquire("ac-2"); !ok {
		t.Error("the limit of one account counts for another")
	}
	release()
	if _, ok := limit.Acquire("ac-1"); !ok {
		t.Error("a released stream still counts")
	}
}
