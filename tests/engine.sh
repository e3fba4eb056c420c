#!/bin/sh
# Makes a container engine ready, and the base image of abx on it. Does nothing where both are there.
#
# Without an engine, on Debian and its kin, it installs Debian's own packages (docker.io, iptables) and starts the
# daemon `dockerd`: it runs containers, listens on /var/run/docker.sock, and keeps its data in /var/lib/docker. Where no
# registry can be reached, the base image is built from Debian packages.
set -eu

image=debian:stable-slim
start_limit=60   # seconds for dockerd to answer
pull_limit=300   # seconds for the registry to deliver 30 MB

say() { printf '%s\n' "engine: $*"; }
fail() { printf '%s\n' "engine: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
answers() { docker info >/dev/null 2>&1; }

# Packages are fetched without questions; the list of packages only if it does not know them yet.
install() {
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$log" 2>&1; then
        as_root apt-get update -q >"$log" 2>&1 || { cat "$log" >&2; fail "apt-get update failed"; }
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$log" 2>&1 ||
            { cat "$log" >&2; fail "cannot install $*"; }
    fi
}

install_engine() {
    if ! command -v apt-get >/dev/null; then
        case "$(uname -s)" in
            Darwin) fail "no engine answers. Start Docker Desktop, colima ('colima start') or Podman, then run this again." ;;
            *) fail "no engine answers. Install and start Docker or Podman with your system's tools, then run this again." ;;
        esac
    fi
    if ! command -v dockerd >/dev/null; then
        say "no engine here: installing docker.io and iptables from Debian"
        install docker.io iptables busybox-static ca-certificates
        # Later releases of Debian keep the client in a package of its own.
        command -v docker >/dev/null || install docker-cli
    fi
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        say "starting docker.service"
        as_root systemctl start docker
    elif ! pgrep -x dockerd >/dev/null 2>&1; then
        say "starting dockerd in the background, log in /var/log/dockerd.log"
        as_root sh -c 'setsid nohup dockerd >/var/log/dockerd.log 2>&1 </dev/null &'
    fi
    waited=0
    until answers; do
        if [ "$waited" -ge "$start_limit" ]; then
            if as_root docker info >/dev/null 2>&1; then
                fail "the engine runs, but not for you: 'sudo usermod -aG docker $(id -un)', log in again, run this again."
            fi
            as_root tail -n 20 /var/log/dockerd.log >&2 2>/dev/null || true
            fail "dockerd does not answer after $start_limit s (its last words are above)"
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

build_image() {
    command -v apt-get >/dev/null || fail "cannot pull $image, and only Debian can build it"
    say "cannot pull $image: building it from Debian packages, once; takes a minute or two"
    command -v debootstrap >/dev/null || install debootstrap
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    tree=$(mktemp -d)
    for suite in stable "$codename"; do
        # shellcheck disable=SC2046 # no mirror found is no argument: debootstrap then takes its own default
        as_root debootstrap --variant=minbase "$suite" "$tree/root" $("$(dirname "$0")/mirror.sh") >"$log" 2>&1 && break
        as_root rm -rf "$tree/root"
        say "debootstrap of '$suite' failed: $(tail -n 1 "$log")"
    done
    [ -d "$tree/root" ] || { as_root rm -rf "$tree"; fail "cannot build $image"; }
    # What the published slim image leaves out as well.
    as_root tar -C "$tree/root" --numeric-owner -c --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' \
        --exclude='./usr/share/locale/*' . | docker import \
        --change 'CMD ["bash"]' \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        - "$image" >/dev/null || { as_root rm -rf "$tree"; fail "cannot import $image"; }
    as_root rm -rf "$tree"
    # Of a stream that was cut short an engine may still make an image.
    if [ "$(docker image inspect --format '{{.Size}}' "$image")" -lt 20000000 ]; then
        docker image rm "$image" >/dev/null
        fail "what was imported as $image is not whole"
    fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! answers; then
    install_engine
    start_engine
fi
if ! docker image inspect "$image" >/dev/null 2>&1; then
    say "pulling $image"
    if command -v timeout >/dev/null; then limit="timeout $pull_limit"; else limit=; fi
    # shellcheck disable=SC2086 # two words, or none
    $limit docker pull -q "$image" >/dev/null 2>&1 || build_image
fi
say "ready: $(docker version --format 'version {{.Server.Version}}, API {{.Server.APIVersion}}'), image $image"
