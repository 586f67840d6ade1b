// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/fairlead-dev/fairlead/sdk"
)

// In these examples a service runs in the same process, and the environment has its address and
// credentials, as it has on a machine where fairlead is set up.

func ExampleListen() {
	defer startExampleService()()
	ctx := context.Background()
	listener, err := sdk.Listen(ctx, "http://api.example.com", sdk.WithBinding(sdk.BindingPublic),
		sdk.WithDescription("an example"))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "hello from", r.Host)
	})}
	go func() { _ = server.Serve(listener) }()

	callExample("http://api.example.com/")
	if err := server.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 200 OK: hello from api.example.com
}

func ExampleForward() {
	defer startExampleService()()
	forwarder, err := sdk.Forward(context.Background(), "http://web.example.com", "localhost:1",
		sdk.WithBinding(sdk.BindingPublic))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = forwarder.Close() }()
	fmt.Println(forwarder.URL())

	callExample("http://web.example.com/") // there is no upstream
	// Output:
	// http://web.example.com
	// 502 Bad Gateway
}

func ExampleError() {
	defer startExampleService()()
	_, err := sdk.Listen(context.Background(), "http://api.demo", sdk.WithAuthtoken("flt_unknown"))
	var refused *sdk.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Reason, refused.Code)
	}
	// Output: Credentials ERR_FL_1002
}

func ExampleClient() {
	defer startExampleService()()
	ctx := context.Background()
	client, err := sdk.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	answer, err := client.HTTPResponseBackends.Create(ctx, sdk.HTTPResponseBackendFields{Body: new("closed today")})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Endpoints.Create(ctx, sdk.EndpointFields{URL: "http://shop.demo", BackendID: &answer.ID})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range client.Endpoints.List(ctx, sdk.Filter{"type": "cloud"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.URL, e.Status)
	}
	// Output: http://shop.demo online
}

func ExampleEndpoints_Watch() {
	defer startExampleService()()
	ctx := context.Background()
	client, err := sdk.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for event, err := range client.Endpoints.Watch(ctx, nil) {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case sdk.EventSynced:
			fmt.Println("there are no others")
			if _, err := client.Endpoints.Create(ctx, sdk.EndpointFields{URL: "http://shop.demo"}); err != nil {
				log.Fatal(err)
			}
		case sdk.EventAdded:
			fmt.Println("new:", event.Endpoint.URL)
			return
		}
	}
	// Output:
	// there are no others
	// new: http://shop.demo
}
