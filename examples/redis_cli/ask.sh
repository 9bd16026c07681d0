#!/usr/bin/env bash
# Submits a question with redis-cli, prints each event as it comes, and last the result: ask.sh QUESTION [s3://IMAGE]
#
# Exit codes are those of `stoop`: 0 done, 1 the job failed, 2 wrong usage, 3 Redis is out of reach, 4 no answer in time.
set -euo pipefail

[[ $# == 1 || $# == 2 ]] || { echo "usage: $0 QUESTION [s3://IMAGE]" >&2; exit 2; }
url=${STOOP_REDIS_URL:-redis://localhost:6379/0}
seconds=${STOOP_TIMEOUT_SECONDS:-300}

redis() { redis-cli -u "$url" --raw "$@" 2>/dev/null; }

# A JSON string; control characters become spaces.
quoted() { printf '"%s"' "$(printf '%s' "$1" | tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g')"; }

# 128 random bits and the partition: nobody can guess it, and whoever has it knows the job's keys.
id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')-0
job="{\"v\":1,\"id\":\"$id\",\"skill\":\"query\",\"stream\":true,\"question\":$(quoted "$1")${2:+,\"image\":$(quoted "$2")}}"

# One XADD is all of it. What it answers is the entry's id, anything else is an error.
entry=$(redis XADD 'stoop:{0}:jobs:interactive' '*' j "$job") || entry=""
[[ $entry =~ ^[0-9]+-[0-9]+$ ]] || { echo "Redis did not take the job: ${entry:-no answer}" >&2; exit 3; }

# Read the log from its first event and block for the next ones: nothing is missed, whenever the job begins.
last=0 ended=""
while [[ -z $ended ]]; do
  ((SECONDS < seconds)) || { echo "no answer for $id in $seconds s: is a worker running?" >&2; exit 4; }
  # the stream's name, then for each event three lines: the entry's id, its field e, and the event
  while IFS= read -r line; do
    case $line in
      [0-9]*-0) last=$line ;;
      \{*)
        printf '%s\n' "$line"
        [[ $line =~ ^\{\"type\":\"(finished|failed|cancelled|expired)\" ]] && ended=${BASH_REMATCH[1]}
        ;;
    esac
  done < <(redis XREAD BLOCK 1000 STREAMS "stoop:{0}:log:$id" "$last" || sleep 1)
done

redis GET "stoop:{0}:result:$id"
[[ $ended == finished ]]
