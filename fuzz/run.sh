#!/bin/sh
# Fuzzes one parser: fuzz/run.sh TARGET [libFuzzer's options]. Without a target it builds only.
# fuzz/run.sh --minimise TARGET keeps the fewest and shortest inputs that reach as much of it.
set -eu
cd "$(dirname "$0")"

host="$(rustc -vV | sed -n 's/^host: //p')"
# What cargo-fuzz gives to rustc, less the sanitizer, which a stable compiler does not have. As a target is named, what only
# runs while building is not instrumented.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$coverage" cargo build --quiet --locked --release --target "$host"
[ $# -gt 0 ] || exit 0

minimises=
if [ "$1" = --minimise ]; then
    minimises=yes
    shift
fi
target="$1"
shift
kept="corpus/$target"
new="new/$target"
mkdir -p crashes "$new" "$kept"

fuzz() {
    ABX_FUZZ="$target" "${CARGO_TARGET_DIR:-target}/$host/release/fuzz" \
        -artifact_prefix="crashes/$target-" -max_len=4096 -timeout=10 -rss_limit_mb=2048 "$@"
}

if [ -z "$minimises" ]; then
    if [ -f "dictionaries/$target" ]; then set -- -dict="dictionaries/$target" "$@"; fi
    fuzz "$@" "$new" "$kept"
    exit
fi
rm -rf "$new.fewest"
mkdir "$new.fewest"
fuzz -merge=1 "$new.fewest" "$kept" "$new"
# What once was a fault stays, whatever else reaches as far.
find "$kept" -name 'found-*' -exec cp {} "$new.fewest" \;
rm -r "$kept" "$new"
mv "$new.fewest" "$kept"
