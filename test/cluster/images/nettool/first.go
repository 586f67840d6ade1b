// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	firstEvery = 5 * time.Millisecond // between two tries
	// a SYN that met no rule yet is sent again by us, not by the kernel a second later
	firstDial   = 100 * time.Millisecond
	firstGiveUp = time.Minute
)

// first asks every URL it reads, each on its own, until it answers 200, and prints when that was.
func first(ctx context.Context, in io.Reader) error {
	for lines := bufio.NewScanner(in); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		go ask(ctx, lines.Text())
	}
}

func ask(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, firstGiveUp)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: firstDial}).DialContext,
	}}
	var last error
	for ctx.Err() == nil {
		if last = askOnce(ctx, client, url); last == nil {
			fmt.Println(url, time.Now().UnixNano())
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstEvery):
		}
	}
	fmt.Printf("%s never: %v\n", url, last)
}

func askOnce(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
