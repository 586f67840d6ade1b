// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/statustoken"
)

// maxLine is the maximum length of a line, more than any forwarder's listeners need.
const maxLine = 32 << 20

var (
	errSilent = errors.New("its status stream is silent")
	errEnded  = errors.New("its status stream ended")
)

// line is the part of a line of /status?watch=true that is read here.
type line struct {
	Session *struct {
		Up    bool   `json:"up"`
		Error string `json:"error"`
		Legs  []struct {
			Draining     bool `json:"draining"`
			Unresponsive bool `json:"unresponsive"`
		} `json:"legs"`
		WantedLegs int `json:"wanted_legs"`
	} `json:"session"`
	Listeners []listenerLine `json:"listeners"`
	Gone      []int          `json:"gone"`
	Access    *accessLine    `json:"access"`
	Trust     *accessLine    `json:"trust"`
	Denied    []DeniedCalls  `json:"denied"`
}

// listenerLine is what a line says of a listener.
type listenerLine struct {
	Port      int    `json:"port"`
	Hostname  string `json:"hostname"`
	URL       string `json:"url"`
	Listening bool   `json:"listening"`
	Error     string `json:"error"`
	// SealRefused is why the last connection that had to be sealed was refused.
	SealRefused seal `json:"seal_refused"`
	// SealKey is the key of an agent with which a connection was sealed, until that is recorded.
	SealKey string `json:"seal_key"`
}

// servingLegs returns how many legs of the session take connections.
func (l *line) servingLegs() int {
	n := 0
	for _, leg := range l.Session.Legs {
		if !leg.Draining && !leg.Unresponsive {
			n++
		}
	}
	return n
}

// readStream reads the status of one forwarder until the stream ends, and returns the cause.
func (r *Reader) readStream(ctx context.Context, f *forwarder, pod Pod) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(streamTimeout, func() { cancel(errSilent) })
	defer idle.Stop()
	err := r.readLines(ctx, f, pod, func() { idle.Reset(streamTimeout) })
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (r *Reader) readLines(ctx context.Context, f *forwarder, pod Pod, received func()) error {
	url := "http://" + net.JoinHostPort(pod.IP, strconv.Itoa(Port)) + "/status?watch=true"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking for its status: %w", err)
	}
	statustoken.SetHeader(req, statustoken.Derive(r.Objects.OperatorUID(ctx), pod.Name))
	res, err := r.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking for its status: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for its status: the answer is %s", res.Status)
	}
	in := bufio.NewReader(res.Body)
	for first := true; ; first = false {
		text, err := readLine(in)
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("reading its status: %w", err)
		}
		if first && l.Listeners == nil {
			return errors.New("reading its status: the first line is no status")
		}
		received()
		r.applyLine(ctx, f, &l, first)
	}
}

func (r *Reader) applyLine(ctx context.Context, f *forwarder, l *line, first bool) {
	var now, later []string
	access := false
	r.update(ctx, func() {
		if ctx.Err() != nil { // the pod is gone
			return
		}
		access = f.applyAccess(l, first)
		for _, hostname := range f.applyLine(l, first) {
			if _, ok := r.awaited[hostname]; ok {
				delete(r.awaited, hostname)
				now = append(now, hostname)
			} else {
				later = append(later, hostname)
			}
		}
	})
	r.Now.NotifyAll(now)
	r.Later.NotifyAll(later)
	if access && r.Access != nil {
		r.Access.Passed(ctx)
	}
}

// readLine returns the next line. It does not keep the memory: the first line may be long, later
// ones are short.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text bytes.Buffer
	for {
		part, err := in.ReadSlice('\n')
		if text.Len()+len(part) > maxLine {
			return nil, fmt.Errorf("reading its status: a line is longer than %d bytes", maxLine)
		}
		text.Write(part)
		switch {
		case err == nil:
			return text.Bytes(), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, errEnded
		default:
			return nil, fmt.Errorf("reading its status: %w", err)
		}
	}
}
