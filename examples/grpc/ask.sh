#!/usr/bin/env bash
# Asks a question by gRPC with curl and protoc, and prints the answer as JSON: ask.sh HOST:PORT QUESTION [IMAGE-ADDRESS]
#
# An API key comes from STOOP_API_KEY. Exit codes: 0 answered, 1 refused or failed, 2 wrong usage, 3 no connection.
set -euo pipefail

[[ $# == 2 || $# == 3 ]] || { echo "usage: $0 HOST:PORT QUESTION [IMAGE-ADDRESS]" >&2; exit 2; }
proto=${KSERVE_PROTO:-$(dirname "$0")/../../producer/stoop/gateway/grpc/kserve.proto}
# protoc is Debian's protobuf-compiler, or a part of Python's grpcio-tools
read -ra protoc <<<"${PROTOC:-$(command -v protoc || echo "python3 -m grpc_tools.protoc")}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

messages() { "${protoc[@]}" -I "$(dirname "$proto")" "$1=inference.$2" "$(basename "$proto")"; }
quoted() { printf '"%s"' "$(printf '%s' "$1" | tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g')"; }
input() { echo "inputs { name: \"$1\" datatype: \"BYTES\" shape: 1 contents { bytes_contents: $(quoted "$2") } }"; }

{
  echo 'model_name: "moondream"'
  input SKILL query
  input QUESTION "$2"
  [[ $# == 2 ]] || input IMAGE "$3"
} | messages --encode ModelInferRequest >"$folder/message"

# gRPC sends a message behind five bytes: 0, which means not compressed, and its length
size=$(wc -c <"$folder/message")
printf "$(printf '\\x%02x' 0 $((size >> 24 & 255)) $((size >> 16 & 255)) $((size >> 8 & 255)) $((size & 255)))" >"$folder/body"
cat "$folder/message" >>"$folder/body"

curl --silent --show-error --http2-prior-knowledge --dump-header "$folder/headers" --output "$folder/answer" \
  --header 'Content-Type: application/grpc' --header 'TE: trailers' \
  ${STOOP_API_KEY:+--header "Authorization: Bearer $STOOP_API_KEY"} \
  --data-binary "@$folder/body" "http://$1/inference.GRPCInferenceService/ModelInfer" || exit 3

header() { sed -n "s/^$1: //ip" "$folder/headers" | tr -d '\r'; }
[[ $(header grpc-status) == 0 ]] || { echo "status $(header grpc-status): $(header grpc-message)" >&2; exit 1; }
printf '%b\n' "$(tail -c +6 "$folder/answer" | messages --decode ModelInferResponse |
  sed -n 's/^ *bytes_contents: "\(.*\)"$/\1/p' | sed "s/\\\\\\([\"']\\)/\\1/g")"
