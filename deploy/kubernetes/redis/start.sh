#!/bin/sh
# Starts a Redis that knows the users of users.acl by the passwords in the environment: start.sh REDIS_CONF [OPTION...]
set -eu
umask 077
filled=${RUN_FOLDER:-/run/stoop}/users.acl
cp "$(dirname "$0")/users.acl" "$filled"
for user in PRODUCER READER CLIENT WORKER OPERATOR; do
  eval "password=\${${user}_PASSWORD:-}"
  if [ -z "$password" ]; then
    echo "set ${user}_PASSWORD: every user of deploy/redis/users.acl needs a password" >&2
    exit 2
  fi
  digest=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
  sed -i "s/\${${user}_SHA256}/$digest/" "$filled"
done
exec redis-server "$@" --aclfile "$filled"
