#!/bin/sh
# Makes the two images that the Dockerfile starts from, for a machine that reaches a Debian mirror and npm but no registry of images:
# localhost/local/debian and localhost/local/node. As root, with debootstrap, podman and npm. Nothing is done where they are there.
set -eu
podman image exists localhost/local/debian && podman image exists localhost/local/node && exit 0
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase bookworm "$root/debian" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$root/log" 2>&1 || {
  tail -n 20 "$root/log" >&2
  exit 1
}
(cd "$root/debian" && rm -rf usr/share/doc/* usr/share/man/* usr/share/locale/* usr/share/info/* var/cache/apt/* var/lib/apt/lists/*)
tar -C "$root/debian" -c . | podman import -q - local/debian

npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix "$root/node" "node-linux-$(node -p process.arch)@22"
npm_folder=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
mkdir -p "$root/debian/usr/local/bin" "$root/debian/usr/local/lib/node_modules"
cp "$root/node/node_modules/node-linux-$(node -p process.arch)/bin/node" "$root/debian/usr/local/bin/"
cp -a "$npm_folder" "$root/debian/usr/local/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/debian/usr/local/bin/npm"
# Where a proxy signs connections with a certificate of its own, npm in the build has to know it.
mkdir -p "$root/debian/etc/ssl/certs"
cp -L "${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}" "$root/debian/etc/ssl/certs/ca-certificates.crt"
tar -C "$root/debian" -c . |
  podman import -q --change 'ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt' - local/node
