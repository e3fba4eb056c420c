#!/bin/sh
# Runs every check and every test, those on a real engine too, and ends with the test runner's own summary.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "all: $*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

tests/engine.sh

# The clients that the tests put on the socket, and what builds the fuzzer.
packages=
for pair in curl:curl git:git nvim:neovim emacs:emacs-nox vim:vim less:less htop:htop tmux:tmux socat:socat \
    python3:python3 node:nodejs npm:npm \
    busybox:busybox-static debootstrap:debootstrap docker-registry:docker-registry \
    systemd-socket-activate:systemd; do
    command -v "${pair%%:*}" >/dev/null || packages="$packages ${pair#*:}"
done
# What makes Python's environments, into which its clients are installed.
python3 -c 'import ensurepip, venv' 2>/dev/null || packages="$packages python3-venv"
if [ -n "$packages" ]; then
    command -v apt-get >/dev/null || { say "install these first:$packages" >&2; exit 1; }
    say "installing the clients that tests use:$packages"
    as_root apt-get update -q >/dev/null
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages >/dev/null
fi
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    rustup component add rustfmt clippy
fi

# Meanwhile the compiler works.
tests/systemd.sh &
systemd=$!
trap 'kill "$systemd" 2>/dev/null || true' EXIT

say "format"
cargo fmt --all --check
say "lints"
cargo clippy --locked --all-features --all-targets -- -D warnings
say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --all-features --no-deps --quiet
say "examples in the documentation"
cargo test --locked --all-features --doc --quiet
wait "$systemd"
trap - EXIT

# With this set, a test that needs an engine fails without one; it is never skipped.
export ABX_TEST_ENGINE=1
# Properties are tried on the same examples each time, so that what fails here failed because of the change. To look for
# more, run them by themselves with many: PROPTEST_CASES=100000 cargo nextest run --all-features -E 'test(random)'
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-20261130}"
say "tests"
if cargo nextest --version >/dev/null 2>&1; then
    profile=default
    if [ -n "${CI:-}" ]; then profile=ci; fi
    exec cargo nextest run --locked --all-features --profile "$profile"
fi
exec cargo test --locked --all-features --no-fail-fast --lib --bins --tests
