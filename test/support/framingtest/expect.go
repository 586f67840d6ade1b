// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framingtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// Answers reads every answer on a connection until it ends, as "200 body", and returns the error of
// the last read.
func Answers(c io.Reader) (all []string, end error) {
	for r := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return all, err
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return all, err
		}
		all = append(all, fmt.Sprintf("%d %s", res.StatusCode, b))
	}
}

// Expect sends bytes and checks the statuses of the answers. It closes c.
func Expect(t *testing.T, c io.ReadWriteCloser, send, want string) {
	t.Helper()
	done := make(chan struct{})
	go func() { // a server that has heard enough does not read on
		defer close(done)
		_, _ = io.WriteString(c, send)
	}()
	ExpectAnswers(t, c, want)
	_ = c.Close()
	<-done
}

// ExpectByteByByte is Expect with a write for each byte.
func ExpectByteByByte(t *testing.T, c io.ReadWriteCloser, send, want string) {
	t.Helper()
	sent := make(chan struct{})
	defer func() { _ = c.Close(); <-sent }()
	go func() {
		defer close(sent)
		for i := range len(send) {
			if _, err := c.Write([]byte{send[i]}); err != nil {
				return
			}
		}
	}()
	ExpectAnswers(t, c, want)
}

// ExpectAnswers checks the statuses of the answers until the connection ends.
func ExpectAnswers(t *testing.T, c io.Reader, want string) {
	t.Helper()
	all, end := Answers(c)
	got := make([]string, len(all))
	for i, a := range all {
		got[i], _, _ = strings.Cut(a, " ")
		if strings.Contains(a, "smuggled") {
			t.Errorf("a request that was not sent as one was answered: %q", a)
		}
	}
	if errors.Is(end, os.ErrDeadlineExceeded) {
		t.Errorf("the connection did not end after %q", all)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("answers %q (%v), want %q", all, end, want)
	}
}
