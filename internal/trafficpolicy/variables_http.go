// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"cmp"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
)

// text returns a variable that every request has.
func text(name string, get func(x *exchange) string) variable {
	return variable{name, cel.StringType, requestAndResponse, func(x *exchange) (any, bool) { return get(x), true }}
}

// headerLists is the type of headers and of query parameters.
var headerLists = cel.MapType(cel.StringType, cel.ListType(cel.StringType))

func queryParams(x *exchange) (any, bool) {
	return x.cached("query", len(x.r.URL.RawQuery), func() any {
		return map[string][]string(x.r.URL.Query())
	}), true
}

func requestVariables() []variable {
	all := []variable{
		text("req.method", func(x *exchange) string { return x.r.Method }),
		text("req.host", func(x *exchange) string { return x.r.Host }),
		text("req.path", (*exchange).cleanPath),
	}
	all = append(all, urlVariables()...)
	all = append(all, []variable{
		{"req.query_params", headerLists, requestAndResponse, queryParams},
		{"req.headers", headerLists, requestAndResponse, func(x *exchange) (any, bool) {
			return &headerMap{h: x.r.Header, host: x.r.Host}, true
		}},
		{"req.cookies", cookieType, requestAndResponse, func(x *exchange) (any, bool) {
			return x.cached("cookies", size(x.r.Header["Cookie"]), func() any { return cookieMap(x.r.Cookies()) }), true
		}},
		{"req.user_agent", cel.StringType, requestAndResponse, func(x *exchange) (any, bool) {
			return nonEmpty(x.r.Header.Get("User-Agent"))
		}},
		text("req.version", func(x *exchange) string { return x.r.Proto }),
		{"req.content_length", cel.IntType, requestAndResponse, func(x *exchange) (any, bool) {
			return x.r.ContentLength, x.r.ContentLength >= 0
		}},
		{"req.ts.header_received", cel.TimestampType, requestAndResponse, func(x *exchange) (any, bool) {
			return x.startedAt, true
		}},
	}...)
	return append(all, contentVariables("req", requestAndResponse, func(x *exchange) http.Header {
		return x.r.Header
	})...)
}

func urlVariables() []variable {
	uri := func(x *exchange) string {
		return x.cached("uri", len(x.r.URL.Path)+len(x.r.URL.RawQuery), func() any {
			return requestURI(x.r.URL)
		}).(string)
	}
	return []variable{
		text("req.url", func(x *exchange) string {
			return x.cached("url", len(x.r.URL.Path)+len(x.r.URL.RawQuery), func() any {
				u := url.URL{Scheme: x.scheme(), Host: strings.ToLower(x.r.Host), Path: x.cleanPath(),
					RawQuery: x.r.URL.RawQuery}
				return u.String()
			}).(string)
		}),
		text("req.url.raw", func(x *exchange) string { return x.scheme() + "://" + x.r.Host + uri(x) }),
		text("req.url.scheme", func(x *exchange) string { return x.scheme() }),
		text("req.url.authority", func(x *exchange) string { return x.r.Host }),
		text("req.url.host", func(x *exchange) string { h, _ := splitHost(x.r.Host); return h }),
		{"req.url.port", cel.IntType, requestAndResponse, func(x *exchange) (any, bool) {
			_, port := splitHost(x.r.Host)
			n, err := strconv.Atoi(port)
			return int64(n), err == nil
		}},
		text("req.url.path", (*exchange).cleanPath),
		text("req.url.raw_path", func(x *exchange) string {
			return x.cached("raw_path", len(x.r.URL.Path), func() any { return x.r.URL.EscapedPath() }).(string)
		}),
		text("req.url.uri", uri),
		text("req.url.query", func(x *exchange) string { return x.r.URL.RawQuery }),
		{"req.url.query_params", headerLists, requestAndResponse, queryParams},
	}
}

func responseVariables() []variable {
	all := []variable{
		{"res.status_code", cel.IntType, responsePhase, func(x *exchange) (any, bool) { return int64(x.status), true }},
		{"res.headers", headerLists, responsePhase,
			func(x *exchange) (any, bool) {
				return &headerMap{h: x.w.Header()}, true
			}},
		{"res.cookies", cookieType, responsePhase, func(x *exchange) (any, bool) {
			return x.cached("res.cookies", size(x.w.Header()["Set-Cookie"]), func() any {
				return cookieMap((&http.Response{Header: x.w.Header()}).Cookies())
			}), true
		}},
		{"res.content_length", cel.IntType, responsePhase, func(x *exchange) (any, bool) {
			n, err := strconv.ParseInt(x.w.Header().Get("Content-Length"), 10, 64)
			return n, err == nil
		}},
		{"res.location", cel.StringType, responsePhase, func(x *exchange) (any, bool) {
			return nonEmpty(x.w.Header().Get("Location"))
		}},
	}
	return append(all, contentVariables("res", responsePhase, func(x *exchange) http.Header { return x.w.Header() })...)
}

func contentVariables(of string, when []phase, header func(x *exchange) http.Header) []variable {
	media := func(x *exchange) (string, map[string]string, bool) {
		value := header(x).Get("Content-Type")
		parsed := x.cached(of+".content_type", len(value), func() any {
			kind, params, err := mime.ParseMediaType(value)
			return mediaType{kind, params, err == nil}
		}).(mediaType)
		return parsed.kind, parsed.params, parsed.ok
	}
	return []variable{
		{of + ".content_type", cel.StringType, when, func(x *exchange) (any, bool) {
			kind, _, ok := media(x)
			return kind, ok
		}},
		{of + ".content_type.raw", cel.StringType, when, func(x *exchange) (any, bool) {
			return nonEmpty(header(x).Get("Content-Type"))
		}},
		{of + ".content_type.parameters", cel.MapType(cel.StringType, cel.StringType), when,
			func(x *exchange) (any, bool) {
				_, params, ok := media(x)
				return params, ok
			}},
		{of + ".content_encoding", cel.ListType(cel.StringType), when, func(x *exchange) (any, bool) {
			values := header(x)["Content-Encoding"]
			all := x.cached(of+".content_encoding", size(values), func() any {
				var all []string
				for _, v := range values {
					for part := range strings.SplitSeq(v, ",") {
						all = append(all, strings.ToLower(strings.TrimSpace(part)))
					}
				}
				return all
			}).([]string)
			return all, len(all) > 0
		}},
	}
}

type mediaType struct {
	kind   string
	params map[string]string
	ok     bool
}

// size returns the bytes of texts.
func size(texts []string) int {
	n := 0
	for _, s := range texts {
		n += len(s)
	}
	return n
}

var cookieType = cel.MapType(cel.StringType, cel.ListType(cel.MapType(cel.StringType, cel.StringType)))

func cookieMap(cookies []*http.Cookie) map[string][]map[string]string {
	all := map[string][]map[string]string{}
	for _, c := range cookies {
		all[c.Name] = append(all[c.Name], map[string]string{"name": c.Name, "value": c.Value, "path": c.Path,
			"domain": c.Domain})
	}
	return all
}

// cleanPath returns the path as most upstreams read it: decoded, without //, /./ and /../.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && (strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")) {
		clean += "/"
	}
	return clean
}

func requestURI(u *url.URL) string {
	uri := cmp.Or(u.EscapedPath(), "/")
	if u.RawQuery != "" || u.ForceQuery {
		uri += "?" + u.RawQuery
	}
	return uri
}

func splitHost(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return strings.Trim(hostport, "[]"), ""
	}
	return host, port
}
