#!/bin/sh
# Makes the image of a machine that runs systemd, for tests of the daemon as its service. Does nothing where it is there.
#
# It is of this machine's own release of Debian: the programs that were built here run there.
set -eu

image=abx-test-systemd:1

say() { printf '%s\n' "systemd: $*"; }
fail() { printf '%s\n' "systemd: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

if docker image inspect "$image" >/dev/null 2>&1; then exit 0; fi
command -v debootstrap >/dev/null || fail "install debootstrap first: the image is built from Debian packages"
log=$(mktemp)
tree=$(mktemp -d)
trap 'as_root rm -rf "$tree"; rm -f "$log"' EXIT
say "building $image from Debian packages, once; takes a minute or two"
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
# shellcheck disable=SC2046 # no mirror found is no argument: debootstrap then takes its own default
as_root debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd \
    "$codename" "$tree/root" $("$(dirname "$0")/mirror.sh") >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "debootstrap failed"; }
as_root tar -C "$tree/root" --numeric-owner -c --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' . |
    docker import --change 'CMD ["/sbin/init"]' - "$image" >/dev/null
# Of a stream that was cut short an engine may still make an image.
if ! docker run --rm "$image" systemctl --version >/dev/null; then
    docker image rm "$image" >/dev/null
    fail "what was imported as $image is not whole"
fi
say "ready: image $image"
