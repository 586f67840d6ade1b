// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// caller knows the way to a server.
type caller struct {
	addr string
	opts []grpc.DialOption
}

func (c caller) dial(more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(c.addr, append(c.opts, more...)...)
}

// must returns a connection, or ends the program as the cases do.
func (c caller) must(more ...grpc.DialOption) *grpc.ClientConn {
	conn, err := c.dial(more...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	return conn
}

// cases are those that pass against the server of `interop serve`. The others need an account of a
// cloud, or a server that names itself or reports its load by itself. Each ends the program when it
// fails.
var cases = map[string]func(caller, *grpc.ClientConn){
	"empty_unary":                 with(interop.DoEmptyUnaryCall),
	"large_unary":                 with(interop.DoLargeUnaryCall),
	"client_streaming":            with(interop.DoClientStreaming),
	"server_streaming":            with(interop.DoServerStreaming),
	"ping_pong":                   with(interop.DoPingPong),
	"empty_stream":                with(interop.DoEmptyStream),
	"timeout_on_sleeping_server":  with(interop.DoTimeoutOnSleepingServer),
	"cancel_after_begin":          cancelAfterBegin,
	"cancel_after_first_response": with(interop.DoCancelAfterFirstResponse),
	"status_code_and_message":     with(interop.DoStatusCodeAndMessage),
	"special_status_message":      with(interop.DoSpecialStatusMessage),
	"custom_metadata":             with(interop.DoCustomMetadata),
	"unimplemented_method": func(_ caller, conn *grpc.ClientConn) {
		interop.DoUnimplementedMethod(context.Background(), conn)
	},
	"unimplemented_service": func(_ caller, conn *grpc.ClientConn) {
		interop.DoUnimplementedService(context.Background(), testgrpc.NewUnimplementedServiceClient(conn))
	},
	"orca_per_rpc": func(c caller, _ *grpc.ClientConn) {
		conn := c.must(grpc.WithDefaultServiceConfig(
			`{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}`))
		defer func() { _ = conn.Close() }()
		interop.DoORCAPerRPCTest(context.Background(), testgrpc.NewTestServiceClient(conn))
	},
	"rpc_soak": func(_ caller, conn *grpc.ClientConn) {
		soak(func() (*grpc.ClientConn, func()) { return conn, func() {} })
	},
	"channel_soak": func(c caller, _ *grpc.ClientConn) {
		soak(func() (*grpc.ClientConn, func()) {
			conn := c.must()
			return conn, func() { _ = conn.Close() }
		})
	},
}

// with makes a case of what needs a client and nothing else.
func with(do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(caller, *grpc.ClientConn) {
	return func(_ caller, conn *grpc.ClientConn) { do(context.Background(), testgrpc.NewTestServiceClient(conn)) }
}

// cancelAfterBegin runs the case with a client that does not end a cancelled stream: gRPC notices the
// cancellation in a goroutine of its own, and a server that got the end before answers the call.
func cancelAfterBegin(c caller, _ *grpc.ClientConn) {
	conn := c.must(grpc.WithStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		return openWhenCancelled{stream}, err
	}))
	defer func() { _ = conn.Close() }()
	interop.DoCancelAfterBegin(context.Background(), testgrpc.NewTestServiceClient(conn))
}

// openWhenCancelled ends its stream unless that is cancelled.
type openWhenCancelled struct{ grpc.ClientStream }

func (s openWhenCancelled) CloseSend() error {
	select {
	case <-s.Context().Done():
		return nil
	default:
		return s.ClientStream.CloseSend()
	}
}

// soak runs large calls with the sizes of gRPC's own client. How long one takes is not what is
// tested.
func soak(channel func() (*grpc.ClientConn, func())) {
	const long = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize: 271828, ResponseSize: 314159, PerIterationMaxAcceptableLatency: long, OverallTimeout: long,
		NumWorkers: 2, Iterations: 20, ChannelForTest: channel,
	})
}
