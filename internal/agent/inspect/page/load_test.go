// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

// scriptedStream is a stream of the tunnel that has one request and takes the answer.
type scriptedStream struct {
	net.Conn

	request []byte
}

func (s *scriptedStream) CloseWrite() error { return nil }
func (s *scriptedStream) Abort() error      { return nil }

// Next returns the request, then the end.
func (s *scriptedStream) Next() ([]byte, error) {
	p := s.request
	if s.request = nil; p == nil {
		return nil, io.EOF
	}
	return p, nil
}

func (s *scriptedStream) Write(p []byte) (int, error) { return len(p), nil }

// record lets a Recorder see a request and its answer as the agent's relay carries them.
func record(r *inspect.Recorder, info inspect.Info, request, answer string) {
	tap := r.Tap(&scriptedStream{request: []byte(request)}, info)
	_, _ = tap.Next()
	_, _ = tap.Write([]byte(answer))
	tap.End(nil)
}

// realSite serves the pages of a Recorder.
func realSite(t *testing.T, r *inspect.Recorder) string {
	t.Helper()
	srv := httptest.NewServer(inspect.NewHandler(r, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		inspect.ServerOptions{Pages: New(Options{Recorder: r})}))
	t.Cleanup(srv.Close)
	return srv.URL
}

const (
	loadSeconds   = 30
	loadPerSecond = 500
)

// TestInspector_ShowsLoadSmoothly shows 500 requests a second for half a minute and measures the
// time between frames and the memory of the page. The limits leave room for a machine that other
// programs use, too: a page that draws each request by itself, or keeps rows, is far beyond them.
func TestInspector_ShowsLoadSmoothly(t *testing.T) {
	ctx := chromium.Start(t, false)
	r := inspect.New()
	t.Cleanup(r.Close)
	b := &chromium.Tab{T: t, Ctx: ctx, Base: realSite(t, r)}
	b.Resize(1280, 720, "light")
	b.Open("/")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	chromium.Eval[bool](b, `(() => {
		window.gaps = [];
		let last = performance.now();
		const step = (now) => { gaps.push(now - last); last = now; requestAnimationFrame(step); };
		requestAnimationFrame(step);
		return true;
	})()`)
	own, before := rendererMemory(t)
	feedLoad(r)
	b.WaitUntil("the last one", fmt.Sprintf(`[...document.querySelectorAll("#requests tbody a")].some((a) =>
		a.innerText.includes("/items/%d?"))`, loadSeconds*loadPerSecond-1))
	gaps := chromium.Eval[[]float64](b, "gaps.slice(5)")
	slices.Sort(gaps)
	within := func(ms float64) float64 {
		n, _ := slices.BinarySearch(gaps, ms)
		return float64(n) / float64(len(gaps))
	}
	median, longest := gaps[len(gaps)/2], gaps[len(gaps)-1]
	p99 := gaps[len(gaps)*99/100]
	page := chromium.Eval[map[string]int](b, `({rows: document.querySelectorAll("#requests tbody tr").length,
		elements: document.querySelectorAll("*").length})`)
	heap := heapOf(b)
	anonymous, resident := rendererMemory(t)
	t.Logf(
		"%d requests/s for %d s: %d frames, median %.1f ms, 99th percentile %.1f ms, longest %.1f ms, %.1f %% within "+
			"17.5 ms, %.1f %% within 34 ms; heap %d KiB; process: %d MiB of its own (%d before), %d MiB resident (%d "+
			"before); %v; "+
			"dropped %d bytes", loadPerSecond, loadSeconds,
		len(gaps), median, p99, longest, within(17.5)*100, within(34)*100, heap>>10, anonymous>>20, own>>20,
		resident>>20, before>>20,
		page, r.Dropped())
	if median > 34 || p99 > 500 || within(34) < 0.7 {
		t.Error("the list stutters")
	}
	if page["rows"] > defaultRows || page["elements"] > 3000 || heap > 50<<20 || anonymous > 200<<20 {
		t.Error("the page grows")
	}
}

// feedLoad records the requests of the load, at its rate.
func feedLoad(r *inspect.Recorder) {
	info := inspect.Info{EndpointID: "ep-1", EndpointURL: "http://api.demo",
		Caller: inspect.Caller{IP: "10.0.0.7", Pod: "web-1", Namespace: "shop"}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n, start := 0, time.Now(); n < loadSeconds*loadPerSecond; {
		<-tick.C
		due := min(int(time.Since(start).Seconds()*loadPerSecond), loadSeconds*loadPerSecond)
		for ; n < due; n++ {
			record(r, info,
				fmt.Sprintf("GET /items/%d?%s HTTP/1.1\r\nHost: api.demo\r\nAuthorization: Bearer %s\r\n\r\n",
					n, strings.Repeat("x", n%40), secretBearer),
				fmt.Sprintf("HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
					200+n%5*76))
		}
	}
}

// heapOf returns the bytes that the scripts of a page hold.
func heapOf(b *chromium.Tab) int64 {
	b.T.Helper()
	chromium.Call(b, performance.Enable, performance.EnableParams{})
	for _, m := range chromium.Call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "JSHeapUsedSize" {
			return int64(m.Value)
		}
	}
	b.T.Fatal("the browser does not tell the size of the heap")
	return 0
}

// rendererMemory returns the bytes of the largest process of this test's browser that draws pages:
// its own ones, and the resident ones, to which belong those of the program that all its processes
// share. 0 where there is no /proc.
func rendererMemory(t *testing.T) (own, resident int64) {
	t.Helper()
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		command, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(command), "--type=renderer") || !isDescendant(filepath.Dir(file)) {
			continue
		}
		proc := filepath.Dir(file)
		if rss := statusField(proc, "VmRSS:") << 10; rss > resident {
			own, resident = (statusField(proc, "RssAnon:")+statusField(proc, "RssShmem:"))<<10, rss
		}
	}
	return own, resident
}

// isDescendant reports whether a process, by its folder in /proc, was started by this one or by a
// process that it has started.
func isDescendant(proc string) bool {
	for range 10 {
		parent := statusField(proc, "PPid:")
		if parent == int64(os.Getpid()) {
			return true
		}
		if parent <= 1 {
			return false
		}
		proc = filepath.Join("/proc", strconv.FormatInt(parent, 10))
	}
	return false
}

// statusField returns a number of a process's status; 0 = it has none, or has ended.
func statusField(proc, name string) int64 {
	status, _ := os.ReadFile(filepath.Join(proc, "status"))
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}
