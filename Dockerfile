# Images of fairlead-operator, fairlead-server and the agent: one static binary each, without a shell, as user 65532.
#
#   docker build --target operator --build-arg VERSION=0.1.0 -t fairlead-operator:0.1.0 .
#   docker build --target server   --build-arg VERSION=0.1.0 -t fairlead-server:0.1.0 .
#   docker build --target agent    --build-arg VERSION=0.1.0 -t fairlead-agent:0.1.0 .
#
# --build-arg REVISION=$(git rev-parse HEAD) names the commit, which `version` prints.
# The server keeps its data in the volume: run it with --data-dir /var/lib/fairlead.
# `make image` makes the same without a container engine.

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=0.0.0-dev REVISION=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X github.com/fairlead-dev/fairlead/internal/version.version=$VERSION \
        -X github.com/fairlead-dev/fairlead/internal/version.revision=$REVISION" \
    -o /out/ ./cmd/fairlead ./cmd/fairlead-operator ./cmd/fairlead-server
RUN mkdir -p /out/data

FROM scratch AS base
ARG VERSION=0.0.0-dev
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.source=https://github.com/fairlead-dev/fairlead
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 65532:65532

FROM base AS operator
LABEL org.opencontainers.image.title=fairlead-operator
COPY --from=build /out/fairlead-operator /fairlead-operator
ENTRYPOINT ["/fairlead-operator"]

FROM base AS agent
LABEL org.opencontainers.image.title=fairlead-agent
COPY --from=build /out/fairlead /fairlead
ENTRYPOINT ["/fairlead"]

FROM base AS server
LABEL org.opencontainers.image.title=fairlead-server
COPY --from=build /out/fairlead-server /fairlead-server
COPY --from=build --chown=65532:65532 /out/data /var/lib/fairlead
VOLUME /var/lib/fairlead
ENTRYPOINT ["/fairlead-server"]
