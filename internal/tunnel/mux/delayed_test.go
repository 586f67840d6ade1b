// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// TestStream_DelayedFramesAreSentTogether checks that delayed frames are sent with the next frame
// of any stream.
func TestStream_DelayedFramesAreSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g, streams := newGatedSession(t, 3)
		g.open.Store(true)
		opened, err := s.OpenLater(t.Context(), []byte("header"))
		noError(t, "OpenLater", err)
		_, err = streams[0].WriteLater([]byte("word"))
		noError(t, "WriteLater", err)
		noError(t, "CloseWriteLater", streams[1].CloseWriteLater())
		if writes := g.begun(t); len(writes) != 0 {
			t.Fatalf("wrote %v at once", writes)
		}
		if n := s.Queued(); n != 0 {
			t.Errorf("%d bytes are queued, want none: no call waits for them", n)
		}
		_, err = opened.Write([]byte("request"))
		noError(t, "Write", err)
		writes := g.begun(t)
		if len(writes) != 1 || len(dataFrames(writes[0])) != 3 || len(writes[0]) != 5 { // an opening and a FIN
			t.Fatalf("wrote %v", writes)
		}
	})
}

const maxFlushDelay = 5 * time.Millisecond // how long a frame waits for company

func TestStream_DelayedFramesAreSentSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, streams := newGatedSession(t, 1)
		g.open.Store(true)
		for range 2 { // the clock is wound up again
			_, err := streams[0].WriteLater([]byte("word"))
			noError(t, "WriteLater", err)
			time.Sleep(maxFlushDelay - time.Millisecond)
			if writes := g.begun(t); len(writes) != 0 {
				t.Fatalf("wrote %v early", writes)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if writes := g.begun(t); len(writes) != 1 {
				t.Fatalf("wrote %v after %v", writes, maxFlushDelay)
			}
		}
		large := make([]byte, 10<<10)
		if _, err := streams[0].WriteLater(large); err != nil || len(g.begun(t)) != 1 {
			t.Fatalf("what is large went out later, %v", err)
		}
	})
}

func TestStream_BufferedIsReadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := newSessionPair(t, 0, mux.Config{})
		here, there := openStream(t, client, server, "abc")
		_, err := here.Write(randomBytes(1, 10<<10))
		noError(t, "Write", err)
		synctest.Wait()
		if n := there.Buffered(); n != 3+10<<10 {
			t.Errorf("%d bytes, want %d", n, 3+10<<10)
		}
		lent, err := there.Next()
		noError(t, "Next", err)
		if n := there.Buffered(); n != 3+10<<10-len(lent) {
			t.Errorf("%d bytes beside the %d that are lent", n, len(lent))
		}
	})
}
