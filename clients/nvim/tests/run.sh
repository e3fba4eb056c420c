#!/bin/sh
# Runs the tests in Neovim against a live abxd and engine, in a home of their own.
#
# ABX_TEST_ABX: the program abx, with abxd beside it [default: abx in PATH]. ABX_TEST_IMAGE: an image with a shell
# [default: debian:stable-slim]. NVIM: the editor [default: nvim].
set -eu
cd "$(dirname "$0")/.."
: "${ABX_TEST_ABX:=$(command -v abx)}" "${ABX_TEST_IMAGE:=debian:stable-slim}"
dir=$(mktemp -d "${TMPDIR:-/tmp}/abx-nvim-XXXXXX")
export ABX_TEST_ABX ABX_TEST_IMAGE ABX_TEST_DIR="$dir"
export ABX_HOME="${ABX_TEST_HOME:-$dir/home}" XDG_DATA_HOME="$dir/data" XDG_CONFIG_HOME="$dir/config" XDG_STATE_HOME="$dir/state"
unset ABX_SOCKET
code=0
timeout --kill-after=5 240 "${NVIM:-nvim}" --headless -u NONE -i NONE -n \
    --cmd "set rtp^=$PWD" -c 'runtime plugin/abx.lua' -c 'luafile tests/run.lua' || code=$?
# What the tests made goes, also when they failed.
names=$("$ABX_TEST_ABX" --no-autostart -q ls 2>/dev/null || :)
printf '%s\n' "$names" | while IFS= read -r name; do
    [ -z "$name" ] || "$ABX_TEST_ABX" delete -y "$name" >/dev/null 2>&1 || :
done
"$ABX_TEST_ABX" daemon stop >/dev/null 2>&1 || :
"$ABX_TEST_ABX" --home "$dir/away" daemon stop >/dev/null 2>&1 || :
rm -rf "$dir"
exit "$code"
