#!/bin/sh
# The main job for real, in a home of its own: start a session, work in it, save, stop, resume, go back, fork, delete.
# Shows every command and its output, checks what it says, and removes all that it made. No argument: builds first.
set -eu
cd "$(dirname "$0")/.."

tests/engine.sh
echo "demo: building abx and abxd"
cargo build --release --locked --bins
target=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
PATH="$target/release:$PATH"

dir=$(mktemp -d /tmp/abx-demo.XXXXXX)
export ABX_HOME="$dir/home" NO_COLOR=1
unset ABX_SOCKET
work="$dir/project"
mkdir "$work"
echo 'fn main() {}' >"$work/main.rs"

finish() {
    code=$?
    trap - EXIT INT TERM
    abx --no-autostart daemon stop >/dev/null 2>&1 || true
    # Only what carries this home's label; nothing is left here after a run that went well.
    docker ps -aq --filter "label=dev.abx.session.home=$ABX_HOME" | xargs -r docker rm -f >/dev/null 2>&1 || true
    docker images -q --filter "label=dev.abx.snapshot.home=$ABX_HOME" | xargs -r docker rmi -f >/dev/null 2>&1 || true
    if [ "$code" != 0 ] && [ -f "$ABX_HOME/log/abxd.log" ]; then
        echo "demo: the daemon's last words:" >&2
        tail -n 20 "$ABX_HOME/log/abxd.log" >&2
    fi
    # Files that root made in the sandbox are root's on the host too.
    rm -rf "$dir" 2>/dev/null || sudo rm -rf "$dir"
    [ "$code" = 0 ] || echo "demo: FAILED" >&2
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Shows and runs `abx ARGS`; its output goes to $out, its code to $code.
run() {
    printf '\n$ abx'
    for word in "$@"; do
        case "$word" in
            *[!A-Za-z0-9_./:=-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    code=0
    out=$(abx "$@" 2>&1) || code=$?
    [ -z "$out" ] || printf '%s\n' "$out"
}
fail() { echo "demo: $*" >&2; exit 1; }
# The last command succeeded, and its output holds each of these texts.
want() {
    [ "$code" = 0 ] || fail "exit code $code"
    for text in "$@"; do
        case "$out" in *"$text"*) ;; *) fail "the output should hold: $text" ;; esac
    done
}
# The row of a session in the list says this.
row() {
    run session list
    printf '%s\n' "$out" | grep -Eq "^$1 +claude +$2 " || fail "$1 should be listed as $2"
}

run session start --name feature-x --agent claude -B docker -w "$work"
want "Session 'feature-x' started." "  Sandbox: session-feature-x" "Attach with: abx attach session-feature-x"

run exec session-feature-x -- sh -c 'echo "built here" > /root/result; cp main.rs copy.rs; ls'
want main.rs copy.rs
[ -f "$work/copy.rs" ] || fail "what is written to the workspace should be on the host"
row feature-x running
printf '%s\n' "$out" | grep -Eq '^feature-x .* 1$' || fail "one command should be counted"

run exec feature-x -- sh -c 'exit 7'
[ "$code" = 7 ] || fail "the command's own exit code should come out, not $code"

run session save feature-x
want "Session 'feature-x' saved (snapshot: feature-x-2"
snapshot=$(printf '%s\n' "$out" | sed -n 's/.*(snapshot: \(.*\))$/\1/p')
row feature-x saved

run session resume feature-x
want "Session 'feature-x' resumed."
run exec feature-x -- cat /root/result
want "built here"

run session stop feature-x
want "Session 'feature-x' stopped."
row feature-x stopped

echo
echo "(the daemon is restarted: nothing depends on it staying)"
run daemon restart
want
row feature-x stopped
run session resume feature-x
want
run exec feature-x -- sh -c 'cat /root/result; echo broken > /root/result'
want "built here"

run session stop feature-x
want
run session resume feature-x --snapshot "$snapshot"
want "Session 'feature-x' resumed."
run exec feature-x -- cat /root/result
want "built here"

run session fork feature-x feature-y --snapshot "$snapshot"
want "Session 'feature-y' started."
run exec feature-y -- cat /root/result
want "built here"
row feature-x running
row feature-y running
run snapshot list
want "$snapshot"

run session delete -y feature-x feature-y
want "Session 'feature-x' deleted." "Session 'feature-y' deleted."
run session list
want "No sessions found."
[ -z "$(docker ps -aq --filter "label=dev.abx.session.home=$ABX_HOME")" ] || fail "a container is left"
[ -z "$(docker images -q --filter "label=dev.abx.snapshot.home=$ABX_HOME")" ] || fail "a snapshot is left"
[ -f "$work/copy.rs" ] || fail "the workspace should be left alone"

echo
echo "demo: all of it worked"
