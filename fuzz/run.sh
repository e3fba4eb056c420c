#!/bin/sh
# Fuzzes the parsers, tells what came of it, and fails when one of them breaks.
#   fuzz/run.sh [TARGET...] [-OPTION...]   each for FUZZ_SECONDS, a minute if unset; all of them without a target. What
#                                          reaches further goes into the corpus. Options are libFuzzer's own.
#   fuzz/run.sh --check [TARGET...]        as a change to a parser must pass: a few seconds each, and nothing is kept.
#   fuzz/run.sh --one TARGET FILE          gives one input to one parser.
#   fuzz/run.sh --build                    only builds.
set -eu
here="$PWD"
cd "$(dirname "$0")"

most_bytes=4096 # of an input; what needs more has been found by shorter ones so far
most_mb=2048    # resident, corpus and all
most_wait=30    # seconds for one input: a parser that hangs, on however busy a machine
check_runs=20000
check_seconds=6
check_seed=20261130

host="$(rustc -vV | sed -n 's/^host: //p')"
# What cargo-fuzz gives to rustc, less the sanitizer, which a stable compiler does not have. As a target is named, what only
# runs while building is not instrumented.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$coverage" cargo build --quiet --locked --release --target "$host"
program="${CARGO_TARGET_DIR:-target}/$host/release/fuzz"

logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

check=
case "${1:-}" in
    --build) exit 0 ;;
    --one)
        case "$3" in /*) input="$3" ;; *) input="$here/$3" ;; esac
        ABX_FUZZ="$2" "$program" "$input"
        exit
        ;;
    --check) check=yes; shift ;;
esac
targets=
while [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; do
    targets="$targets $1"
    shift
done
[ -n "$targets" ] || targets="$(ls corpus)"

# fuzz TARGET OPTION... DIRECTORY...: runs libFuzzer.
fuzz() {
    name="$1"
    shift
    ABX_FUZZ="$name" "$program" -artifact_prefix="crashes/$name-" \
        -max_len="$most_bytes" -rss_limit_mb="$most_mb" -timeout="$most_wait" "$@"
}

# seek TARGET OPTION...: looks for inputs that reach further, and puts them into `new`.
seek() {
    name="$1"
    shift
    if [ -f "dictionaries/$name" ]; then set -- -dict="dictionaries/$name" "$@"; fi
    if [ -n "$check" ]; then
        # The order in which a directory is read is the file system's own; a list makes runs alike everywhere.
        find "corpus/$name" -type f | LC_ALL=C sort | paste -s -d , - | tr -d '\n' >"$logs/inputs"
        fuzz "$name" -seed_inputs="@$logs/inputs" -seed="$check_seed" -runs="$check_runs" \
            -max_total_time="$check_seconds" -print_final_stats=1 "$@" "$new"
    else
        fuzz "$name" -max_total_time="${FUZZ_SECONDS:-60}" -print_final_stats=1 "$@" "$new" "corpus/$name"
    fi
}

# keep TARGET: puts what reaches code that nothing else reaches into the corpus, the shortest inputs first. What has a name
# of its own stays, whatever else reaches as far: it is what clients send, or what once was a fault.
keep() {
    find "corpus/$1" -name '????????????????????????????????????????' -exec mv {} "$new" \;
    fuzz "$1" -merge=1 -use_counters=0 "corpus/$1" "$new" >"$logs/$1.merge" 2>&1 || { cat "$logs/$1.merge" >&2; exit 1; }
    rm -r "$new"
}

stat() { sed -n "s/^stat::$1: *//p" "$logs/$name.log"; }
count() { find "$1" -type f | wc -l; }

broken=
row='| %-8s | %11s | %9s | %6s | %4s | %4s | %7s |\n'
# shellcheck disable=SC2059 # the format of each row
{
    printf "$row" target executions 'a second' edges new kept crashes
    printf "$row" --- ---: ---: ---: ---: ---: ---:
}
mkdir -p crashes
for name in $targets; do
    [ -d "corpus/$name" ] || { echo "run.sh: no target $name; those of corpus/ are" >&2; exit 2; }
    new="new/$name"
    [ -z "$check" ] || new="$logs/$name"
    mkdir -p "$new"
    crashes=0
    seek "$name" "$@" >"$logs/$name.log" 2>&1 || crashes=1
    edges="$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$logs/$name.log" | tail -n 1)"
    found="$(count "$new")"
    if [ -z "$check" ]; then keep "$name"; fi
    # shellcheck disable=SC2059 # the format of each row
    printf "$row" "$name" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" "$edges" "$found" \
        "$(count "corpus/$name")" "$crashes"
    if [ "$crashes" = 1 ]; then
        broken="$broken $name"
        tail -n 60 "$logs/$name.log" >&2
    fi
done
[ -z "$broken" ] || { echo "run.sh: these broke, and crashes/ has what broke them:$broken" >&2; exit 1; }
