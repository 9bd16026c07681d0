#!/usr/bin/env bash
# Asks Triton a question with curl and prints each response as JSON: ask.sh QUESTION [IMAGE]
#
# TRITON is the server's address. Exit codes: 0 done, 1 an error, which is printed, 2 wrong usage.
set -euo pipefail

[[ $# == 1 || $# == 2 ]] || { echo "usage: $0 QUESTION [IMAGE]" >&2; exit 2; }
url=${TRITON:-http://localhost:8000}/v2/models/moondream/generate_stream

# A JSON string; control characters become spaces.
quoted() { printf '"%s"' "$(printf '%s' "$1" | tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g')"; }

# JSON has no bytes, so the image goes as base64; through a pipe, because it is too long for an argument.
request() {
  printf '{"SKILL": "query", "STREAM": true, "QUESTION": %s' "$(quoted "$1")"
  if [[ $# == 2 ]]; then
    printf ', "IMAGE": "'
    base64 <"$2" | tr -d '\n'
    printf '"'
  fi
  printf '}'
}

failed=0
while IFS= read -r line; do
  [[ $line == "data: "* ]] || continue
  printf '%s\n' "${line#data: }"
  [[ $line == 'data: {"error"'* ]] && failed=1
done < <(request "$@" | curl -sN "$url" -H 'Content-Type: application/json' --data-binary @- || echo 'data: {"error":"no answer"}')
exit $failed
