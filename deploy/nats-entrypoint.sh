#!/bin/sh
# Starts nats-server with the passwords that its configuration asks for: the file nats_gateway becomes
# $NATS_GATEWAY_PASSWORD. Passwords are in the server's environment, never in its arguments.
set -eu
for file in "${SECRETS_DIR:-/run/secrets}"/nats_*; do
  name=$(basename "$file" | tr 'a-z' 'A-Z')_PASSWORD
  # Quoted, or the server would read a password of digits as a number.
  export "$name=\"$(cat "$file")\""
done
exec nats-server --config "${1:-/etc/nats/nats.conf}"
