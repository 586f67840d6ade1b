// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// memory is a log and its one key, for tests of time: they run in a bubble, where a database has no
// place.
type memory struct {
	apiserver.Store
	mu      sync.Mutex
	events  []account.EndpointEvent
	wakes   []chan struct{}
	deleted bool
}

func (m *memory) EndpointEvents(_ context.Context, _ string, v account.ResourceVersion, _ account.EndpointFilter,
	limit int) (
	[]account.EndpointEvent, account.ResourceVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := min(int(v.Seq)+limit, len(m.events))
	some := slices.Clone(m.events[v.Seq:last])
	for i, e := range some {
		own := *e.Endpoint
		some[i].Endpoint = &own
	}
	return some, account.ResourceVersion{Epoch: 1, Seq: int64(last)}, nil
}

func (m *memory) Subscribe(accountID string) (<-chan struct{}, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := make(chan struct{}, 1)
	if accountID == "ac-1" {
		m.wakes = append(m.wakes, ch)
	}
	return ch, func() {}
}

func (m *memory) add(metadata string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := account.ResourceVersion{Epoch: 1, Seq: int64(len(m.events) + 1)}
	m.events = append(m.events, account.EndpointEvent{Type: account.Modified, ResourceVersion: v,
		Endpoint: &account.Endpoint{ID: "ep-1", EndpointSettings: account.EndpointSettings{Metadata: metadata}}})
	for _, ch := range m.wakes {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (m *memory) APIKeyBySecret(context.Context, string) (*account.APIKey, error) {
	return &account.APIKey{ID: "ak-1", AccountID: "ac-1", Scopes: []account.Scope{account.ScopeAdmin}}, nil
}

func (m *memory) LiveCredentials(
	context.Context, []account.CredentialUse,
) (map[account.CredentialUse]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[account.CredentialUse]bool{{ID: "ak-1"}: !m.deleted}, nil
}

// withWatchServer serves a memory log with all defaults and hands out raw watches from version 0.
func withWatchServer(t *testing.T, test func(t *testing.T, m *memory, watch func() (net.Conn, *bufio.Reader))) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		listener := pipelistener.New()
		srv := &http.Server{Handler: apiserver.New(apiserver.Options{Store: m, SharedOptions: httpkit.SharedOptions{
			BaseURL: base, Logger: slog.New(slog.DiscardHandler)}})}
		served := make(chan error)
		go func() { served <- srv.Serve(listener) }()
		test(t, m, func() (net.Conn, *bufio.Reader) {
			ours, theirs := net.Pipe()
			listener.Offer(theirs)
			_, err := fmt.Fprint(ours,
				"GET /endpoints?watch=true&resource_version=1-0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
					"flk_x\r\nService-Version: 2\r\n\r\n")
			storetest.Must(t, err)
			return ours, bufio.NewReader(ours)
		})
		storetest.Must(t, srv.Close())
		<-served
	})
}

// header reads up to the end of the answer's header.
func header(t *testing.T, r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		storetest.Must(t, err)
		if line == "\r\n" {
			return
		}
	}
}

// chunk reads one chunk of a chunked body; "" is its end.
func chunk(t *testing.T, r *bufio.Reader) string {
	size, err := r.ReadString('\n')
	storetest.Must(t, err)
	var n int
	_, err = fmt.Sscanf(size, "%x", &n)
	storetest.Must(t, err)
	data := make([]byte, n+2)
	for read := 0; read < len(data); {
		got, err := r.Read(data[read:])
		storetest.Must(t, err)
		read += got
	}
	return string(data[:n])
}

func TestWatch_BookmarksEvery15Seconds(t *testing.T) {
	withWatchServer(t, func(t *testing.T, m *memory, watch func() (net.Conn, *bufio.Reader)) {
		conn, r := watch()
		header(t, r)
		began := time.Now()
		for i := 1; i <= 4; i++ {
			if i == 3 {
				m.add("") // a change does not put the heartbeat off
				storetest.Equal(t, "change", strings.Contains(chunk(t, r), `"MODIFIED"`), true)
			}
			storetest.Equal(t, "bookmark", chunk(t, r),
				fmt.Sprintf(`{"type":"BOOKMARK","resource_version":"1-%d"}`+"\n", i/3))
			storetest.Equal(t, "at", time.Since(began), time.Duration(i)*15*time.Second)
		}
		storetest.Must(t, conn.Close())
	})
}

func TestWatch_CutsOffSlowClient(t *testing.T) {
	withWatchServer(t, func(t *testing.T, m *memory, watch func() (net.Conn, *bufio.Reader)) {
		slow, r := watch()
		header(t, r)
		fast, f := watch()
		header(t, f)
		began := time.Now()
		m.add(strings.Repeat("x", 4096))
		storetest.Equal(t, "neighbour", strings.Contains(chunk(t, f), `"MODIFIED"`), true)
		storetest.Equal(t, "neighbour at", time.Since(began), 0)
		time.Sleep(11 * time.Second) // of the bubble: slow is not read
		synctest.Wait()
		m.add("")
		storetest.Equal(t, "neighbour after the cut", strings.Contains(chunk(t, f), `"MODIFIED"`), true)
		_, err := r.ReadString('\n')
		if err == nil {
			t.Fatal("a watcher that took nothing for 11 s is still served")
		}
		storetest.Must(t, slow.Close())
		storetest.Must(t, fast.Close())
	})
}

func TestWatch_EndsWithinSecondOfKey(t *testing.T) {
	withWatchServer(t, func(t *testing.T, m *memory, watch func() (net.Conn, *bufio.Reader)) {
		conn, r := watch()
		header(t, r)
		for range 4 { // a minute of bookmarks
			chunk(t, r)
		}
		time.Sleep(100 * time.Millisecond) // of the bubble
		m.mu.Lock()
		m.deleted = true
		m.mu.Unlock()
		began := time.Now()
		storetest.Equal(t, "end", chunk(t, r), "")
		if took := time.Since(began); took > time.Second {
			t.Errorf("the watch lived %s after its key", took)
		}
		storetest.Must(t, conn.Close())
	})
}

func TestWatch_ReadsInBatches(t *testing.T) {
	withWatchServer(t, func(t *testing.T, m *memory, watch func() (net.Conn, *bufio.Reader)) {
		for i := range 1000 {
			m.add(fmt.Sprint(i))
		}
		conn, r := watch()
		header(t, r)
		text := ""
		for strings.Count(text, "\n") < 1000 {
			text += chunk(t, r)
		}
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			if !strings.Contains(line, fmt.Sprintf(`"resource_version":"1-%d"`, i+1)) {
				t.Fatalf("line %d is %s", i, line)
			}
		}
		storetest.Must(t, conn.Close())
	})
}
