// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What must hold after the service's first accepted connection, and during an outage.
const (
	watchRecovery     = 3 * time.Second
	forwarderRecovery = 3 * time.Second
	agentRecovery     = 12 * time.Second
	answerWithin      = 5 * time.Second
	// silentSession is how long a session may stand on which nothing comes any more: a ping after
	// 15 s and up to a third more, unanswered for 30 s.
	silentSession = 50 * time.Second
	// slack is what a busy machine may add, on which two cores run a cluster and the tests beside
	// this one. The logs say what it was; the product's own waiting is held to the moment by
	// internal/operator/forwarder's tests.
	slack = 2 * time.Second
	// maxLogLines bounds the lines that a program may log in an outage, however long.
	maxLogLines = 25
)

// trafficLine is a line by which an agent shows a request or a connection: not noise.
var trafficLine = regexp.MustCompile(`(?m)^\S+  (GET|open|closed) .*\n`)

// outage is one way in which the service is away.
type outage struct {
	name         string
	api, tunnels fault
	cut, freeze  []connKind
	// dataPathUp: the data path stays up, so no request may fail.
	dataPathUp bool
}

// outages are those of the account's API only, and those of all connections. A rig goes through one
// of each.
var outages = [][2]outage{
	{{name: "API answers 500", api: answer500, cut: []connKind{apiConn}, dataPathUp: true},
		{name: "all gone", api: gone, tunnels: gone, cut: []connKind{apiConn, tunnelConn}}},
	{{name: "API answers 401", api: answer401, cut: []connKind{apiConn}, dataPathUp: true},
		{name: "all silent after TCP", api: silentTCP, tunnels: silentTCP, cut: []connKind{apiConn, tunnelConn}}},
	{{name: "API answers HTML", api: answerHTML, cut: []connKind{apiConn}, dataPathUp: true},
		{name: "all silent after TLS", api: silentTLS, tunnels: silentTLS, cut: []connKind{apiConn, tunnelConn}}},
	{{name: "API answers half a document", api: answerHalf, cut: []connKind{apiConn}, dataPathUp: true},
		{name: "all answer HTML", api: answerHTML, tunnels: answerHTML, cut: []connKind{apiConn, tunnelConn}}},
	{{name: "watch stands and is silent", freeze: []connKind{apiConn}, dataPathUp: true},
		{name: "all hang", api: silentTCP, tunnels: silentTCP, freeze: []connKind{apiConn, tunnelConn}}},
}

// TestOutage_KeepsServicesAndTraffic checks that nothing is removed, whatever the service does,
// that traffic goes on where it can and is refused in time where it cannot, and that all are back
// soon after the service is. It runs alone: it holds what it sees to seconds.
func TestOutage_KeepsServicesAndTraffic(t *testing.T) {
	c := Shared(t)
	length := durationOf(t, variableOutage, 40*time.Second)
	direct := c.StartService(t)
	web, echo := c.startUpstreams(t)
	pod := c.StartPod(t, Pod{Namespace: c.Namespace(t, "clients"), Image: ImageNettool, Args: []string{"sleep"}})
	session := openSession(t, c, direct)
	rigs := make([]*rig, len(outages))
	urls := []string{"-v", "-rate", fmt.Sprint(4 * len(rigs))}
	for i := range rigs {
		rigs[i] = newRig(t, direct, web, echo)
		urls = append(urls, rigs[i].web, rigs[i].echo)
	}
	for _, g := range rigs {
		g.c.waitAnswers(t, pod, g.web, g.echo)
	}
	calls := c.startLoad(t, pod, urls...)
	for phase := range 2 {
		for _, g := range rigs {
			g.long = c.holdConn(t, pod.Namespace, g.echo, 0)
		}
		for _, g := range rigs {
			g.long.waitOpen(t)
		}
		var all errgroup.Group
		for i, g := range rigs {
			all.Go(func() error {
				o := &outageRun{rig: g, outage: outages[i][phase], length: length, load: calls, session: session}
				report, err := o.run(t.Context())
				t.Logf("%s: %s", o.outage.name, report)
				if err != nil {
					t.Errorf("%s: %v", o.outage.name, err)
				}
				return nil
			})
		}
		_ = all.Wait() // each has reported
	}
	sum := calls.stop(t)
	t.Logf("outages of %v; requests: %+v", length, sum)
}

// outageRun is one rig in one outage.
type outageRun struct {
	rig     *rig
	outage  outage
	length  time.Duration
	load    *load
	session *tunnel.Session // straight to the service

	began, over time.Time
	before      map[string]string
	usageBefore map[string]usage
	agentOutput []string // what they have said before
	lateHost    string   // the hostname of an endpoint that is made during the outage
}

func (o *outageRun) run(ctx context.Context) (report string, err error) {
	g := o.rig
	if o.before, err = g.objects(ctx); err != nil {
		return "", err
	}
	if o.usageBefore, err = g.podUsages(ctx); err != nil {
		return "", err
	}
	for _, a := range g.agents {
		o.agentOutput = append(o.agentOutput, a.Output())
	}
	o.began = time.Now()
	if err := g.proxy.set(o.outage.api, o.outage.tunnels); err != nil {
		return "", err
	}
	g.proxy.cut(o.outage.cut...)
	g.proxy.freeze(o.outage.freeze...)
	if !o.outage.dataPathUp {
		if err := o.waitLongConnReset(ctx); err != nil {
			return "", err
		}
	}
	if err := o.bindLate(ctx); err != nil {
		return "", err
	}
	if err := pause(ctx, time.Until(o.began.Add(o.length))); err != nil {
		return "", err
	}
	lines, during := o.checkDuringOutage(ctx)
	if err := g.proxy.set(pass, pass); err != nil {
		return "", err
	}
	o.over = time.Now()
	back, err := o.measureRecovery(ctx)
	return fmt.Sprintf("%s; at most %d log lines of a program", back, lines),
		errors.Join(during, err, g.checkUnchanged(ctx, o.before), g.checkNotRestarted(ctx), o.checkAnswers())
}

// waitLongConnReset waits until the long connection is cut: nothing carries it any more.
func (o *outageRun) waitLongConnReset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, silentSession+podTimeout) // the API hears of a pod's end later
	defer cancel()
	at, last, err := o.rig.long.waitEnd(ctx)
	switch took := at.Sub(o.began); {
	case err != nil:
		return err
	case !strings.Contains(last, "reset"):
		return fmt.Errorf("the long connection ended with %q, want a reset", last)
	case took > silentSession+slack:
		return fmt.Errorf("the long connection ended after %v, want %v at most", took, silentSession+slack)
	}
	return nil
}

// bindLate makes an endpoint straight at the service.
func (o *outageRun) bindLate(ctx context.Context) error {
	o.lateHost = fmt.Sprintf("late-%d.%s", o.began.UnixMilli(), o.rig.ns)
	_, err := o.session.Bind(ctx, tunnel.Bind{URL: "http://" + o.lateHost, Binding: "kubernetes",
		UpstreamURL: "http://localhost:1", UpstreamProtocol: "http1"})
	return err
}

// checkDuringOutage checks what must hold at the end of the outage. It returns how many lines the
// program that logged most has logged.
func (o *outageRun) checkDuringOutage(ctx context.Context) (lines int, err error) {
	g := o.rig
	errs := []error{g.checkUnchanged(ctx, o.before), g.checkNotRestarted(ctx)}
	if o.outage.dataPathUp {
		if n, err := g.long.echoedLines(ctx); err != nil || n < int(o.length/time.Second) {
			errs = append(errs, fmt.Errorf("%d lines came back on the long connection: %w", n, err))
		}
	}
	logs, err := g.logsSince(ctx, o.began)
	errs = append(errs, err)
	for i, a := range g.agents {
		logs[fmt.Sprintf("agent %d", i)] = trafficLine.ReplaceAllString(
			strings.TrimPrefix(a.Output(), o.agentOutput[i]), "")
	}
	for name, text := range logs {
		n := strings.Count(text, "\n")
		if lines = max(lines, n); n > maxLogLines {
			errs = append(errs, fmt.Errorf("%s logged %d lines:\n%s", name, n, text))
		}
	}
	used, err := g.podUsages(ctx)
	errs = append(errs, err)
	for pod, now := range used {
		if was := o.usageBefore[pod]; now.goroutines > was.goroutines+50 || now.bytes > was.bytes+32<<20 {
			errs = append(errs, fmt.Errorf("%s had %+v before and has %+v", pod, was, now))
		}
	}
	return lines, errors.Join(errs...)
}

// measureRecovery measures how long all need after the service's first accepted connection.
func (o *outageRun) measureRecovery(ctx context.Context) (string, error) {
	g := o.rig
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var watch, forwarders, agents time.Time
	var waiting errgroup.Group
	waiting.Go(func() error { return waitFirst(ctx, &watch, o.lateProjected) })
	waiting.Go(func() error { return waitFirst(ctx, &forwarders, o.sessionsUp) })
	waiting.Go(func() error { return waitFirst(ctx, &agents, o.answeredAgain) })
	if err := waiting.Wait(); err != nil {
		return "", err
	}
	first := g.proxy.firstAccepted()
	if first.IsZero() { // no connection was lost
		first = o.over
	}
	report := fmt.Sprintf(
		"first connection %v after the outage; after that the watch in %v, forwarders in %v, calls in %v",
		first.Sub(o.over).Round(time.Millisecond), watch.Sub(first).Round(time.Millisecond),
		forwarders.Sub(first).Round(time.Millisecond), agents.Sub(first).Round(time.Millisecond))
	var errs []error
	for _, c := range []struct {
		what   string
		at     time.Time
		within time.Duration
	}{{"the watch", watch, watchRecovery}, {"the forwarders", forwarders, forwarderRecovery},
		{"the agents", agents, agentRecovery}} {
		if took := c.at.Sub(first); took > c.within+slack {
			errs = append(errs, fmt.Errorf("%s came back after %v, promised %v", c.what, took, c.within))
		}
	}
	return report, errors.Join(errs...)
}

// waitFirst sets at to the time at which check first returned nil.
func waitFirst(ctx context.Context, at *time.Time, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			*at = time.Now()
			return nil
		}
		if pauseErr := pause(ctx, 50*time.Millisecond); pauseErr != nil {
			return errors.Join(pauseErr, err)
		}
	}
}

func (o *outageRun) lateProjected(ctx context.Context) error {
	return o.rig.c.Client.Get(ctx, client.ObjectKey{Namespace: o.rig.release.Namespace, Name: o.lateHost},
		&v1alpha1.BoundEndpoint{})
}

func (o *outageRun) sessionsUp(ctx context.Context) error {
	statuses, err := o.rig.release.forwarderStatuses(ctx)
	for name, st := range statuses {
		if !st.Session.Up {
			err = errors.Join(err, fmt.Errorf("%s has no session", name))
		}
	}
	return err
}

// answeredAgain returns nil once both endpoints have answered since the outage.
func (o *outageRun) answeredAgain(context.Context) error {
	for _, url := range []string{o.rig.web, o.rig.echo} {
		if !slices.ContainsFunc(o.load.samples(), func(s sample) bool {
			return s.url == url && s.ok && s.at.After(o.over)
		}) {
			return fmt.Errorf("%s has not answered since", url)
		}
	}
	return nil
}

// checkAnswers checks the requests of clients: all are answered where the data path is up, else
// refused in time.
func (o *outageRun) checkAnswers() error {
	var errs []error
	asked, refused := 0, 0
	for _, s := range o.load.samples() {
		if s.url != o.rig.web && s.url != o.rig.echo || s.at.Add(-s.took).Before(o.began.Add(slack)) ||
			s.at.Add(-s.took).
				After(o.over) {
			continue
		}
		asked++
		if !s.ok {
			refused++
		}
		switch {
		case s.took > answerWithin+slack:
			errs = append(errs, fmt.Errorf("%s waited %v: %s", s.url, s.took, s.reason))
		case o.outage.dataPathUp && !s.ok:
			errs = append(errs, fmt.Errorf("%s failed though the data path stands: %s", s.url, s.reason))
		case !s.ok && s.url == o.rig.web && !strings.Contains(s.reason, "503"):
			errs = append(errs, fmt.Errorf("%s failed without a page: %s", s.url, s.reason))
		}
	}
	if asked == 0 || !o.outage.dataPathUp && refused == 0 {
		errs = append(errs, fmt.Errorf("%d calls, %d refused", asked, refused))
	}
	return errors.Join(errs[:min(len(errs), 10)]...)
}
