// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package geo looks up an address's location and network in database files in MaxMind's format,
// which the administrator of the service supplies. None is part of the product.
//
// What comes in: file names, and addresses. Two layouts of records are read, MaxMind's own
// (GeoLite2-City, GeoLite2-ASN, DB-IP) and flat ones (country_code, latitude, longitude, asn …). A
// file is read into memory as a whole and again when it changes; the old one serves until the new
// one is whole.
//
// What goes out: a Location, for sessions of people (internal/service/device) and for conn.geo.* of
// traffic policies.
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
	// maxFile is the most bytes that are read of a file, three times the size of the largest usual
	// ones.
	maxFile     = 512 << 20
	reloadEvery = 10 * time.Second
)

// Location is the location and network of an address; empty and nil fields are unknown.
type Location struct {
	CountryCode string // CountryCode has two letters.
	Country     string // Country is the English name.
	Subdivision string
	City        string
	Latitude    *float64
	Longitude   *float64
	RadiusKM    *int // RadiusKM is the radius around them in which the address is likely to be.

	ASN          int
	Organization string
}

// Databases are open files. They are safe for concurrent use. The nil *Databases has no records.
type Databases struct {
	files []*file
	log   *slog.Logger
}

// file is an open file, reloaded by load, which one goroutine at a time calls.
type file struct {
	path       string
	reader     atomic.Pointer[maxminddb.Reader]
	loaded     fileVersion // loaded is the version of the content that was read last.
	contentErr error       // contentErr is that of the content; nil when it is a database.
	lastLogged string      // lastLogged is the text of the error that was logged last.
}

// fileVersion is the size and modification time of a file's content.
type fileVersion struct {
	size int64
	time time.Time
}

// Open reads the files. Of an address the first file with a location counts, and the first with a
// network.
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

// refresh reloads the changed files. It logs each reload, and an error once until it changes.
func (d *Databases) refresh() {
	for _, f := range d.files {
		changed, err := f.load()
		switch {
		case err != nil && err.Error() != f.lastLogged:
			d.log.Error("a GeoIP database could not be read again; the old one stays in use", "err", err)
			f.lastLogged = err.Error()
		case err == nil:
			f.lastLogged = ""
		}
		if changed {
			m := f.reader.Load().Metadata
			d.log.Info("a GeoIP database was read again", "file", f.path, "type", m.DatabaseType, "built",
				m.BuildTime().UTC())
		}
	}
}

// load reads the file if it has changed, and uses it if it is complete.
func (f *file) load() (changed bool, err error) {
	open, err := os.Open(f.path)
	if err != nil {
		return false, fmt.Errorf("opening a GeoIP database: %w", err)
	}
	defer func() { _ = open.Close() }()
	before, err := versionOf(open)
	switch {
	case err != nil:
		return false, err
	case before == f.loaded:
		return false, f.contentErr
	case before.size > maxFile:
		return false, fmt.Errorf("GeoIP database %s has %d bytes; at most %d are read", f.path, before.size, maxFile)
	}
	content := make([]byte, before.size)
	_, err = io.ReadFull(open, content)
	if after, err2 := versionOf(open); err != nil || err2 != nil || after != before {
		return false, errors.Join(fmt.Errorf(
			"GeoIP database %s changed while it was read; replace it by renaming another file to it", f.path), err,
			err2)
	}
	reader, err := maxminddb.OpenBytes(content, maxminddb.DisableStringCache())
	if f.loaded, f.contentErr = before, nil; err != nil {
		f.contentErr = fmt.Errorf("GeoIP database %s is not in MaxMind's format (.mmdb), or is incomplete: %w", f.path,
			err)
		return false, f.contentErr
	}
	f.reader.Store(reader)
	return true, nil
}

func versionOf(f *os.File) (fileVersion, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return fileVersion{}, fmt.Errorf("checking a GeoIP database: %w", err)
	case !info.Mode().IsRegular():
		return fileVersion{}, &fs.PathError{Op: "reading a GeoIP database", Path: f.Name(),
			Err: errors.New("not a regular file")}
	}
	return fileVersion{info.Size(), info.ModTime()}, nil
}

// Lookup returns the location and network of the address; the zero Location when unknown.
func (d *Databases) Lookup(ip netip.Addr) Location {
	var l Location
	if d == nil || !ip.IsValid() {
		return l
	}
	ip = ip.Unmap().WithZone("")
	for _, f := range d.files {
		var record any
		if err := f.reader.Load().Lookup(ip).Decode(&record); err == nil { // else it is damaged, or has no IPv6
			l.add(record)
		}
	}
	return l
}
