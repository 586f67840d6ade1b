// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framingtest owns the table of requests whose framing programs may read differently, for
// the tests of the listeners: what is sent, byte for byte, and which answers have to come. Tests
// only.
package framingtest

import (
	"maps"
	"strings"
)

// Case is what a client sends, byte for byte, and the statuses of the answers it gets before the
// connection ends.
type Case struct {
	Send string
	Want string // "200", "400", "200 400", "" for none
}

// Host is the Host header of the requests.
const Host = "Host: plain.example.com\r\n"

// Closing is a request that ends its connection.
const Closing = "GET /last HTTP/1.1\r\n" + Host + "Connection: close\r\n\r\n"

// smuggled follows a request that is refused, and must not be answered.
const smuggled = "GET /smuggled HTTP/1.1\r\n" + Host + "\r\n"

// Cases are requests whose end, or whose host, programs may read differently. Nothing behind one
// that is answered with 400 is read as a request.
func Cases() map[string]Case {
	all := headCases()
	maps.Copy(all, framingCases())
	maps.Copy(all, lenientCases())
	return all
}

func rawPost(headers, body string) string {
	return "POST /a HTTP/1.1\r\n" + Host + headers + "\r\n" + body
}

// framingCases are those about the end of a body.
func framingCases() map[string]Case {
	post := rawPost
	return map[string]Case{
		"length and chunks": {post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nG") + smuggled,
			"400"},
		"chunks and length": {post("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "0\r\n\r\nG") + smuggled,
			"400"},
		"two lengths":           {post("Content-Length: 1\r\nContent-Length: 2\r\n", "ab") + smuggled, "400"},
		"the same length twice": {post("Content-Length: 1\r\nContent-Length: 1\r\n", "a") + smuggled, "400"},
		"a list of lengths":     {post("Content-Length: 1, 1\r\n", "a") + smuggled, "400"},
		"a signed length":       {post("Content-Length: +1\r\n", "a") + smuggled, "400"},
		"a negative length":     {post("Content-Length: -1\r\n", "") + smuggled, "400"},
		"a hexadecimal length":  {post("Content-Length: 0x1\r\n", "a") + smuggled, "400"},
		"an empty length":       {post("Content-Length:\r\n", "") + smuggled, "400"},
		"a length beyond all":   {post("Content-Length: 99999999999999999999\r\n", "") + smuggled, "400"},
		"two codings": {post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
			"0\r\n\r\n") + smuggled, "400"},
		"chunked and identity": {post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n") + smuggled,
			"400"},
		"gzip, chunked":               {post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n") + smuggled, "400"},
		"xchunked":                    {post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n") + smuggled, "400"},
		"chunked with a vertical tab": {post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n") + smuggled, "400"},
		"a quoted coding":             {post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n") + smuggled, "400"},
		"chunks in HTTP/1.0": {"POST /a HTTP/1.0\r\n" + Host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
			"400"},
		"a blank before the colon": {post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n") + smuggled, "400"},
		"underscores":              {post("Content_Length: 1\r\n", "a") + smuggled, "400"},
		"a bad chunk size": {post("Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n0\r\n\r\n") + smuggled,
			""},
		"a chunk size with a sign": {post("Transfer-Encoding: chunked\r\n", "+3\r\nabc\r\n0\r\n\r\n") + smuggled,
			""},
		"a chunk size too long": {post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff1\r\nabc") + smuggled,
			""},
		"a chunk line that ends in LF": {post("Transfer-Encoding: chunked\r\n", "3\nabc\r\n0\r\n\r\n") + smuggled, ""},
		"an extension with a bare LF": {
			post("Transfer-Encoding: chunked\r\n", "3;a\nb\r\nabc\r\n0\r\n\r\n") + smuggled, ""},
		"a chunk longer than it says": {post("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n0\r\n\r\n") + smuggled,
			""},
		"a trailer that folds": {post("Transfer-Encoding: chunked\r\n", "0\r\n X: y\r\n\r\n") + smuggled, ""},
	}
}

// lenientCases are small oddities that RFC 9112 lets a server accept, and the bounds of that.
func lenientCases() map[string]Case {
	return map[string]Case{
		"an empty line first":         {"\r\n" + Closing, "200"},
		"an empty line between":       {"GET /a HTTP/1.1\r\n" + Host + "\r\n\r\n" + Closing, "200 200"},
		"two empty lines first":       {"\r\n\r\n" + Closing, "400"},
		"half an escape in the query": {strings.Replace(Closing, "GET /last", "GET /last?100%&%zz", 1), "200"},
		"half an escape in the path":  {strings.Replace(Closing, "GET /last", "GET /100%", 1), "400"},
		"no escape in the path":       {strings.Replace(Closing, "GET /last", "GET /%zz", 1), "400"},
		"a host with a blank":         {"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n" + smuggled, "400"},
		"a dot behind the host":       {strings.Replace(Closing, ".com", ".com.", 1), "200"},
	}
}

// headCases are all others.
func headCases() map[string]Case {
	post := rawPost
	get := func(headers string) string { return "GET /a HTTP/1.1\r\n" + headers + "\r\n" }
	return map[string]Case{
		"one request":          {Closing, "200"},
		"pipelined":            {get(Host) + get(Host) + Closing, "200 200 200"},
		"a body, then another": {post("Content-Length: 3\r\n", "abc") + Closing, "200 200"},
		"a chunked body, then another": {post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n") + Closing,
			"200 200"},
		"chunk extension and trailer": {
			post("Transfer-Encoding: chunked\r\n", "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n") + Closing, "200 200"},
		"upper case":              {post("TRANSFER-ENCODING: Chunked\r\n", "0\r\n\r\n") + Closing, "200 200"},
		"HTTP/1.0":                {"GET /a HTTP/1.0\r\n" + Host + "\r\n", "200"},
		"HTTP/1.0 without a host": {"GET /a HTTP/1.0\r\n\r\n", "404"},
		"a folded header":         {get(Host + "X: a\r\n b\r\n"), "400"},
		"a folded coding": {post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n") + smuggled,
			"400"},
		"a blank before the first header":   {get(" X: a\r\n" + Host), "400"},
		"a bare LF":                         {"GET /a HTTP/1.1\n" + Host + "\r\n", "400"},
		"a bare LF in the headers":          {get(Host + "X: y\n"), "400"},
		"a bare LF at the end":              {"GET /a HTTP/1.1\r\n" + Host + "\n" + smuggled, "400"},
		"a bare CR":                         {get(Host + "X: a\rTransfer-Encoding: chunked\r\n"), "400"},
		"NUL":                               {get(Host + "X: a\x00b\r\n"), "400"},
		"a header without a colon":          {get(Host + "garbage\r\n"), "400"},
		"a header without a name":           {get(Host + ": x\r\n"), "400"},
		"two hosts":                         {get(Host + "Host: app.example.com\r\n"), "400"},
		"the same host twice":               {get(Host + Host), "400"},
		"no host":                           {get("X: y\r\n"), "400"},
		"two hosts, one with an underscore": {get(Host + "Hos_t: x\r\n" + "Connection: close\r\n"), "200"},
		"an absolute target": {"GET http://plain.example.com/a HTTP/1.1\r\n" + Host + "\r\n" + Closing,
			"200 200"},
		"an absolute target in capitals, with another Host": {
			"GET HTTP://plain.example.com?x HTTP/1.1\r\nHost: x\r\n\r\n" + Closing, "200 200"},
		"an absolute target with a user": {
			"GET http://u@plain.example.com/a HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"a target of another scheme":  {"GET ftp://plain.example.com/a HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"a URL without a host":        {"GET http:///a HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"CONNECT":                     {"CONNECT plain.example.com:80 HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"an asterisk":                 {"GET * HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"OPTIONS of all":              {"OPTIONS * HTTP/1.1\r\n" + Host + "Connection: close\r\n\r\n", "200"},
		"a target without a slash":    {"GET a HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"a blank in the target":       {"GET /a b HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"a tab for a blank":           {"GET\t/a HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"two blanks":                  {"GET  /a HTTP/1.1\r\n" + Host + "\r\n" + smuggled, "400"},
		"HTTP/0.9":                    {"GET /a\r\n\r\n", "400"},
		"HTTP/2.0 in HTTP/1":          {"GET /a HTTP/2.0\r\n" + Host + "\r\n" + smuggled, "400"},
		"HTTP/1.2":                    {"GET /a HTTP/1.2\r\n" + Host + "\r\n" + smuggled, "400"},
		"half the preface of HTTP/2":  {"PRI * HTTP/2.0\r\n\r\nSX", "400"},
		"the preface of HTTP/2":       {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		"TLS on the plain port":       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", "400"},
		"an upgrade that is declined": {get(Host+"Connection: Upgrade\r\nUpgrade: echo\r\n") + Closing, "200 200"},
		"a bad one after a declined upgrade": {
			get(Host+"Connection: Upgrade\r\nUpgrade: echo\r\n") + get(Host+Host) + smuggled,
			"200 400"},
		"a bad request after a good one": {get(Host) + get(Host+Host) + smuggled, "200 400"},
		"a head of a megabyte":           {get(Host + "X: " + strings.Repeat("a", 1<<20) + "\r\n"), "431"},
	}
}
