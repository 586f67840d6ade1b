// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// startExampleService runs a service whose account is granted *.example.com, and sets the environment
// as on a machine where fairlead is set up. Examples do not run in parallel.
func startExampleService() (stop func()) {
	dir, err := os.MkdirTemp("", "fairlead-example")
	if err != nil {
		log.Fatal(err)
	}
	up, ended := make(chan service.Addresses, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	o := service.Options{ListenOptions: service.ListenOptions{Addr: "127.0.0.1:0"},
		DataOptions:          service.DataOptions{DataDir: dir, EndpointGrace: time.Minute},
		ObservabilityOptions: service.ObservabilityOptions{AccessLogSample: 1},
		DrainTimeout:         time.Second, Public: service.PublicOptions{HTTPAddr: "127.0.0.1:0"},
		Logger: slog.New(slog.DiscardHandler), OnReady: func(a service.Addresses) { up <- a }}
	go func() { ended <- service.Run(ctx, o) }()
	var at service.Addresses
	select {
	case at = <-up:
	case err := <-ended:
		log.Fatal(err)
	}
	grantExampleDomain(ctx, dir)
	secrets, err := os.ReadFile(filepath.Join(dir, service.BootstrapFileName))
	if err != nil {
		log.Fatal(err)
	}
	env := map[string]string{"FAIRLEAD_SERVER_URL": "https://" + at.Service.String(),
		"FAIRLEAD_CA_SHA256": at.CAFingerprint, "EXAMPLE_PUBLIC_ADDRESS": at.HTTP.String(),
		"FAIRLEAD_AUTHTOKEN": regexp.MustCompile(`flt_[\w-]+`).FindString(string(secrets)),
		"FAIRLEAD_API_KEY":   regexp.MustCompile(`flk_[\w-]+`).FindString(string(secrets)), "XDG_CONFIG_HOME": dir}
	for name, value := range env {
		_ = os.Setenv(name, value)
	}
	return func() {
		for name := range env {
			_ = os.Unsetenv(name)
		}
		cancel()
		<-ended
		_ = os.RemoveAll(dir)
	}
}

func grantExampleDomain(ctx context.Context, dir string) {
	st, err := store.Open(ctx, store.Options{DataDir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	accounts, err := st.ListAccounts(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := st.GrantDomain(ctx, accounts[0].ID, "*.example.com"); err != nil {
		log.Fatal(err)
	}
}

// callExample requests a public URL of the service and prints the answer.
func callExample(url string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	host := req.URL.Host
	req.URL.Host, req.Host = os.Getenv("EXAMPLE_PUBLIC_ADDRESS"), host
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		fmt.Println(res.Status)
		return
	}
	fmt.Printf("%s: %s\n", res.Status, body)
}
