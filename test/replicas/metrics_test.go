// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// metric returns the sum of a metric's samples whose labels contain all the texts.
func (s *replica) metric(name string, labels ...string) float64 {
	s.r.t.Helper()
	res, err := http.Get("http://" + s.metrics + "/metrics")
	must.Succeed(s.r.t, err)
	defer func() { _ = res.Body.Close() }()
	sum, lines := 0.0, bufio.NewScanner(res.Body)
next:
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line, label) {
				continue next
			}
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		must.Succeed(s.r.t, err)
		sum += value
	}
	return sum
}
