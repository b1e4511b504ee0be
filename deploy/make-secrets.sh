#!/bin/sh
# Makes the passwords and certificates that docker-compose.yml hands to its services, in deploy/secrets or
# in the directory that is given. What is there is left as it is.
set -eu
umask 022
dir=${1:-$(dirname "$0")/secrets}
mkdir -p "$dir/eventstore/ca" "$dir/eventstore/node"
# Containers read the files as users of their own, so only the directory keeps others out.
chmod 700 "$dir"

for name in nats_gateway nats_session_service nats_consumer nats_runner_local redis \
  eventstore_admin eventstore_ops; do
  [ -s "$dir/$name" ] || openssl rand -hex 24 >"$dir/$name"
done

cd "$dir/eventstore"
if [ ! -s node/node.crt ]; then
  openssl req -x509 -newkey rsa:3072 -nodes -days 3650 -subj '/CN=vmux event store CA' \
    -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign' \
    -keyout ca.key -out ca/ca.crt 2>/dev/null
  openssl req -newkey rsa:3072 -nodes -subj '/CN=vmux-eventstore' \
    -keyout node/node.key -out node.csr 2>/dev/null
  chmod 644 node/node.key
  cat >extensions <<'END'
basicConstraints=CA:FALSE
keyUsage=digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth,clientAuth
subjectAltName=DNS:eventstore,DNS:localhost,IP:127.0.0.1
END
  openssl x509 -req -in node.csr -CA ca/ca.crt -CAkey ca.key -CAcreateserial -days 3650 \
    -extfile extensions -out node/node.crt 2>/dev/null
  # Nothing else is ever signed by this CA.
  rm -f ca.key ca/ca.srl ca.srl node.csr extensions
fi
