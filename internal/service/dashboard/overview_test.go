// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestOverview_ListsFailingEndpoints lists an endpoint from a tenth of its requests on.
func TestOverview_ListsFailingEndpoints(t *testing.T) {
	t.Parallel()
	for failing, want := range map[float64]string{0: "", 0.2: "", 0.3: "status warning", 1.5: "status offline"} {
		f := newFake(testTime())
		f.failing = failing
		page := signedInAs(t, dashboardOf(t, f, nil), "flk_read").get("/ui/").body
		if got := strings.Contains(page, `<span class="`+want+`">Requests fail</span>`); got != (want != "") {
			t.Errorf("%g of 3 fail: listed as %q is %t", failing, want, got)
		}
		if want == "" && strings.Contains(page, "Requests fail") {
			t.Errorf("%g of 3 fail, and the overview lists it", failing)
		}
	}
}

// certificateOf is the certificate of every public endpoint.
type certificateOf struct{ notAfter time.Time }

func (c certificateOf) EndingSoon(e *account.Endpoint, _ time.Time) []CertificateEnd {
	if e.Bindings[0] != account.BindingPublic {
		return nil
	}
	return []CertificateEnd{{Name: "*.example.com", NotAfter: c.notAfter}}
}

func TestOverview_ListsCertificateOnce(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	srv := dashboardOf(t, f, func(o *Options) { o.Certificates = certificateOf{f.now.Add(48 * time.Hour)} })
	page := signedInAs(t, srv, "flk_read").get("/ui/").body
	if strings.Count(page, ">Certificate expires</span>") != 1 || !strings.Contains(page, "*.example.com") ||
		!strings.Contains(page, "Renew the certificate of the public listeners.") {
		t.Error("the overview does not list the certificate of two endpoints once")
	}
}
