// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxRecords = 500
	maxMemory  = 64 << 20 // memory of all records
	maxBody    = 1 << 20  // kept bytes of one body
	// drainDelay is how long chunks are collected before they are parsed together, unless
	// hurryAbove is queued; unreadDelay if there is no subscriber.
	drainDelay  = 100 * time.Millisecond
	unreadDelay = 500 * time.Millisecond
	hurryAbove  = maxQueued / 4 // bytes
)

// Recorder keeps the last exchanges of tapped connections. It is safe for concurrent use.
type Recorder struct {
	epoch    time.Time
	idPrefix string
	replays  chan struct{} // a slot for each replay

	// Of the taps, without a lock.
	queued  atomic.Int64 // bytes
	dropped atomic.Int64 // bytes
	// nextAdmitted is, in nanoseconds since epoch, when the exchange after the last admitted one
	// would be due at maxRate and maxByteRate.
	nextAdmitted atomic.Int64
	ready        atomic.Pointer[conn]
	asleep       atomic.Bool // the goroutine waits for chunks
	pausing      atomic.Bool // the goroutine waits for more chunks
	closed       atomic.Bool
	buffers      bufferPools
	wakeup       chan struct{}
	done         chan struct{}
	version      atomic.Uint64

	draining sync.Mutex // held by drain

	mu        sync.Mutex // guards what follows, and the parsers of all connections
	records   []*record  // by sequence number, without gaps
	next      uint64     // sequence number of the next record
	memory    int64      // bytes that the records take
	readers   map[chan struct{}]struct{}
	endpoints []Endpoint
	counts    map[string]*endpointCounts // by endpoint id
}

// Endpoint is an endpoint of the agent, for filters and /api/tunnels.
type Endpoint struct {
	ID       string
	URL      string // the endpoint's URL; a labelled tunnel's labels
	Name     string // "" = none was given
	AlsoAt   string // AlsoAt is another URL at which the service answers; "" = none.
	Upstream string
	Online   bool
	// Marked are names of headers that are masked beside those of IsSecret.
	Marked []string
}

// endpointCounts is what happened at an endpoint since the start.
type endpointCounts struct {
	conns, open, requests int64
}

// New returns a Recorder; Close ends it.
func New() *Recorder {
	prefix := make([]byte, 4)
	_, _ = rand.Read(prefix) // never fails
	r := &Recorder{
		epoch: time.Now(), idPrefix: hex.EncodeToString(prefix), replays: make(chan struct{}, maxReplays),
		wakeup: make(chan struct{}, 1), done: make(chan struct{}), readers: make(map[chan struct{}]struct{}),
		counts: make(map[string]*endpointCounts),
	}
	go r.run()
	return r
}

// Close ends the recording. What was recorded can still be read; taps go on without recording.
func (r *Recorder) Close() {
	if r.closed.CompareAndSwap(false, true) {
		r.wake()
	}
	<-r.done
}

// wake ends a wait of the Recorder's goroutine.
func (r *Recorder) wake() {
	select {
	case r.wakeup <- struct{}{}:
	default:
	}
}

// hurry makes the Recorder's goroutine parse at once.
func (r *Recorder) hurry() {
	if r.pausing.Load() && r.pausing.CompareAndSwap(true, false) {
		r.wake()
	}
}

// run parses what the taps have queued until Close.
func (r *Recorder) run() {
	defer close(r.done)
	delay := time.NewTimer(drainDelay)
	defer delay.Stop()
	for !r.closed.Load() {
		if r.drain() {
			r.pause(delay)
			continue
		}
		r.asleep.Store(true)
		if r.ready.Load() == nil {
			<-r.wakeup
		}
		r.asleep.Store(false)
	}
	r.drain()
}

// pause waits until chunks are to be parsed together.
func (r *Recorder) pause(delay *time.Timer) {
	r.pausing.Store(true)
	if r.isRead() {
		delay.Reset(drainDelay)
	} else {
		delay.Reset(unreadDelay)
	}
	select {
	case <-delay.C:
	case <-r.wakeup:
	}
	r.pausing.Store(false)
}

// isRead reports whether there is a subscriber.
func (r *Recorder) isRead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.readers) > 0
}

// refresh parses what is queued for a reader that is no subscriber: those get it at the pace of
// drainDelay.
func (r *Recorder) refresh() {
	if !r.isRead() {
		r.drain()
	}
}

// drain parses what is queued. It returns false if nothing was.
func (r *Recorder) drain() bool {
	r.draining.Lock()
	defer r.draining.Unlock()
	last := r.ready.Swap(nil)
	if last == nil {
		return false
	}
	var c *conn
	for last != nil { // turned round: the first that became ready is parsed first
		before := last.nextReady
		last.nextReady = c
		c, last = last, before
	}
	for c != nil {
		following := c.nextReady
		c.nextReady = nil
		c.ready.Store(false) // before its chunks are taken: a later one puts it on the list again
		r.mu.Lock()
		c.drain()
		r.evict()
		r.mu.Unlock()
		c = following
	}
	r.changed()
	return true
}

// changed wakes the readers.
func (r *Recorder) changed() {
	r.version.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for wake := range r.readers {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// now returns the time since epoch.
func (r *Recorder) now() time.Duration { return time.Since(r.epoch) }

// Version changes with every change of what List and Get return.
func (r *Recorder) Version() uint64 { return r.version.Load() }

// Dropped returns how many bytes were not recorded because the Recorder could not keep up.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Subscribe returns a channel that has a value when something has changed since the last one was
// taken. cancel ends that.
func (r *Recorder) Subscribe() (wake <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	defer r.hurry()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers[c] = struct{}{}
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.readers, c)
	}
}

// Clear forgets all exchanges.
func (r *Recorder) Clear() {
	r.drain() // they began before
	r.mu.Lock()
	for _, x := range r.records {
		r.drop(x)
	}
	r.records = nil
	r.mu.Unlock()
	r.changed()
}

// evict forgets the oldest exchanges beyond the limits. mu must be held.
func (r *Recorder) evict() {
	n, count := 0, len(r.records)
	for n < count && (count-n > maxRecords || r.memory > maxMemory) {
		r.drop(r.records[n])
		r.records[n] = nil
		n++
	}
	r.records = r.records[n:]
}

// drop releases a record that leaves the list. mu must be held.
func (r *Recorder) drop(x *record) {
	r.memory -= x.memory
	x.evict()
}

// add appends a new record. mu must be held.
func (r *Recorder) add(x *record) {
	x.recorder, x.sequence = r, r.next
	r.next++
	r.records = append(r.records, x)
	x.grow(recordOverhead)
}

// find returns the record with an id; nil = there is none any more. mu must be held.
func (r *Recorder) find(id string) *record {
	text, ok := strings.CutPrefix(id, r.idPrefix)
	sequence, err := strconv.ParseUint(text, 16, 64)
	if !ok || err != nil || len(r.records) == 0 {
		return nil
	}
	first := r.records[0].sequence
	if sequence < first || sequence-first >= uint64(len(r.records)) || r.records[sequence-first].id() != id {
		return nil
	}
	return r.records[sequence-first]
}

// Get returns an exchange with its bodies and frames.
func (r *Recorder) Get(id string) (*Exchange, bool) {
	r.refresh()
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.find(id)
	if x == nil {
		return nil, false
	}
	return x.exchange(true), true
}

func (r *Recorder) countsOf(endpointID string) *endpointCounts {
	c := r.counts[endpointID]
	if c == nil {
		c = &endpointCounts{}
		r.counts[endpointID] = c
	}
	return c
}

// SetEndpoint adds an endpoint or replaces the one with its ID.
func (r *Recorder) SetEndpoint(e Endpoint) {
	r.mu.Lock()
	if i := slices.IndexFunc(r.endpoints, func(o Endpoint) bool { return o.ID == e.ID }); i >= 0 {
		r.endpoints[i] = e
	} else {
		r.endpoints = append(r.endpoints, e)
	}
	r.mu.Unlock()
	r.changed()
}

// SetOffline marks the endpoints with a URL as offline, or all of them with "".
func (r *Recorder) SetOffline(url string) {
	r.mu.Lock()
	for i := range r.endpoints {
		if e := &r.endpoints[i]; url == "" || e.URL == url {
			e.Online = false
		}
	}
	r.mu.Unlock()
	r.changed()
}

// Endpoints returns the endpoints that were set, in the order of their first SetEndpoint.
func (r *Recorder) Endpoints() []Endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.endpoints)
}

// Marked returns Endpoint.Marked of the endpoint with an id.
func (r *Recorder) Marked(endpointID string) []string { return r.endpoint(endpointID).Marked }

// endpoint returns the endpoint with an id, and one that has only the id if it is not known.
func (r *Recorder) endpoint(id string) Endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.endpoints, func(e Endpoint) bool { return e.ID == id }); i >= 0 {
		return r.endpoints[i]
	}
	return Endpoint{ID: id}
}
