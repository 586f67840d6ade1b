// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package geo owns the lookup of an address's location and network in database files in MaxMind's
// format, which the administrator of the service supplies. None is part of the product.
//
// What comes in: file names, and addresses. Two layouts of records are read, MaxMind's own
// (GeoLite2-City, GeoLite2-ASN, DB-IP) and flat ones (country_code, latitude, longitude, asn …). A
// file is read into memory as a whole and again when it changes; the old one serves until the new
// one is whole.
//
// Where to: sessions of people (internal/service/device) and conn.geo.* of traffic policies.
package geo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
)

const (
	// maxFile bounds what is read of a file, in bytes: the largest of the usual ones have a third of
	// it.
	maxFile     = 512 << 20
	reloadEvery = 10 * time.Second
)

// Location is what is known of an address; what is empty, or nil, is not known.
type Location struct {
	CountryCode string // two letters
	Country     string // in English
	Subdivision string
	City        string
	Latitude    *float64
	Longitude   *float64
	RadiusKM    *int // around them, in which the address is likely to be

	ASN          int
	Organization string
}

// Databases are open files. They are safe for concurrent use. The nil *Databases knows nothing.
type Databases struct {
	files []*file
	log   *slog.Logger
}

// file is one of them.
type file struct {
	path    string
	reader  atomic.Pointer[maxminddb.Reader]
	seen    stamp  // of what was read last
	bad     error  // what is wrong with it
	failing string // what was last logged
}

// stamp tells two contents of a file apart.
type stamp struct {
	size int64
	time time.Time
}

// Open reads the files. The first that knows something of an address counts.
func Open(paths []string, log *slog.Logger) (*Databases, error) {
	d := &Databases{log: log}
	for _, path := range paths {
		f := &file{path: path}
		if _, err := f.load(); err != nil {
			return nil, err
		}
		d.files = append(d.files, f)
	}
	return d, nil
}

// Run reads files again that have changed, until ctx is done.
func (d *Databases) Run(ctx context.Context) {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.refresh()
		}
	}
}

// refresh tells once of a file that cannot be read, and of one that is new.
func (d *Databases) refresh() {
	for _, f := range d.files {
		changed, err := f.load()
		switch {
		case err != nil && err.Error() != f.failing:
			d.log.Error("a GeoIP database could not be read again; the old one stays in use", "err", err)
			f.failing = err.Error()
		case err == nil:
			f.failing = ""
		}
		if changed {
			m := f.reader.Load().Metadata
			d.log.Info("a GeoIP database was read again", "file", f.path, "type", m.DatabaseType, "built", m.BuildTime().UTC())
		}
	}
}

// load reads the file if it has changed, and takes it in use if it is whole.
func (f *file) load() (changed bool, err error) {
	open, err := os.Open(f.path)
	if err != nil {
		return false, fmt.Errorf("opening a GeoIP database: %w", err)
	}
	defer func() { _ = open.Close() }()
	before, err := stampOf(open)
	switch {
	case err != nil:
		return false, err
	case before == f.seen:
		return false, f.bad
	case before.size > maxFile:
		return false, fmt.Errorf("GeoIP database %s has %d bytes; at most %d are read", f.path, before.size, maxFile)
	}
	content := make([]byte, before.size)
	_, err = io.ReadFull(open, content)
	if after, err2 := stampOf(open); err != nil || err2 != nil || after != before {
		return false,
			errors.Join(fmt.Errorf("GeoIP database %s could not be read whole; replace it by renaming another file to it",
				f.path), err, err2)
	}
	reader, err := maxminddb.OpenBytes(content, maxminddb.DisableStringCache())
	if f.seen, f.bad = before, nil; err != nil {
		f.bad = fmt.Errorf("GeoIP database %s is none in MaxMind's format (.mmdb), or is not whole: %w", f.path, err)
		return false, f.bad
	}
	f.reader.Store(reader)
	return true, nil
}

func stampOf(f *os.File) (stamp, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return stamp{}, fmt.Errorf("looking at a GeoIP database: %w", err)
	case !info.Mode().IsRegular():
		return stamp{}, &fs.PathError{Op: "reading a GeoIP database", Path: f.Name(), Err: errors.New("it is no file")}
	}
	return stamp{info.Size(), info.ModTime()}, nil
}

// Lookup returns what the databases know of the address.
func (d *Databases) Lookup(ip netip.Addr) Location {
	var p Location
	if d == nil || !ip.IsValid() {
		return p
	}
	ip = ip.Unmap().WithZone("")
	for _, f := range d.files {
		var record any
		if err := f.reader.Load().Lookup(ip).Decode(&record); err == nil { // else it is damaged, or has no IPv6
			p.add(record)
		}
	}
	return p
}
