//! Programs that paint whole screens, in a sandbox and beside it: what an emulator shows of the two is the same, cell by
//! cell, while they run, after their viewer came back, and after client and daemon were killed.

use nix::sys::signal::Signal;
use serde_json::json;

use super::shown::Viewer;
use super::terminals::{send, terminals};
use crate::support::engine::programs_image;
use crate::support::{World, until};

const SIZE: (u16, u16) = (90, 36);

/// Where a program is given a directory of its own, with a long text of many kinds of characters in it.
const PREPARE: &str = r#"
    cd "$(mktemp -d)"; export HOME="$PWD"
    line=1
    while [ $line -le 120 ]; do
        printf '\tint line_%s = %s; // 漢字かな 한국어 \360\237\230\200 "text" %s\n' $line $((line * 7)) é
        line=$((line + 1))
    done >text.c
    line=1
    while [ $line -le 120 ]; do
        printf '\033[1;3%smline %s\033[0m \033[4;48;5;%sm日本語\033[0m \033[2mfaint\033[0m \033[7mback\033[0m\n' \
            $((line % 8)) $line $((line + 16))
        line=$((line + 1))
    done >coloured
    {
        echo "set -g status-right ''"
        echo 'set -g automatic-rename off'
        echo 'set -g default-shell /bin/sh'
        echo 'set -g default-command "exec sh"'
        echo 'set -g destroy-unattached on'
        echo 'set -s escape-time 0'
    } >tmux.conf
"#;

/// Keys, and what is on the screen when their work is done.
type Step = (&'static str, &'static str);

/// Runs a program at both places, takes it through `steps`, comes back to it in every way, and goes on with `more`.
fn compare(name: &str, start: &str, steps: &[Step], more: &[Step]) {
    if !crate::support::engine::has_engine() {
        return;
    }
    let image = programs_image();
    let Some(mut world) = World::new() else { return };
    world.call("session.start", json!({"name": "a", "image": image}));
    let script = format!("{PREPARE}\n{start}");
    let program = ["env", "-i", "TERM=xterm-256color", "LANG=C.UTF-8", "PS1=$ ", "PATH=/usr/bin:/bin"];
    let program = [&program[..], &["sh", "-c", &script]].concat();
    let mut local = Viewer::local(SIZE, &program);
    let mut inside = Viewer::attach(&world, SIZE, &[&["--"], &program[..]].concat());
    walk(&mut local, &mut inside, steps, name);

    inside.terminal.press(b"\x1dd");
    assert_eq!(inside.code(), Some(0));
    let mut back = Viewer::attach(&world, SIZE, &[]);
    back.wait_until_like(&mut local, &format!("{name}, seen again after its viewer had left"));

    back.kill();
    until("nobody to be there", || (terminals(&world)[0]["clients"] == 0).then_some(()));
    world.restart(None);
    let mut back = Viewer::attach(&world, SIZE, &[]);
    back.wait_until_like(&mut local, &format!("{name}, seen again after client and daemon were killed"));

    send(&back.abx, Signal::SIGSTOP);
    world.restart(None);
    send(&back.abx, Signal::SIGCONT);
    // Keys that are typed before it is back are lost.
    until("it to be back", || (terminals(&world).first()?["clients"] == 1).then_some(()));
    walk(&mut local, &mut back, more, name);
}

fn walk(local: &mut Viewer, inside: &mut Viewer, steps: &[Step], name: &str) {
    for (keys, shows) in steps {
        local.terminal.press(keys.as_bytes());
        local.wait_for_line(shows);
        inside.terminal.press(keys.as_bytes());
        inside.wait_for_line(shows);
        inside.wait_until_like(local, &format!("{name} after {keys:?}"));
    }
}

#[test]
fn vim_looks_the_same() {
    compare(
        "vim",
        "exec vim --clean -i NONE text.c",
        &[
            ("", "line_1 = 7"),
            ("/line_57\r", "line_57 ="),
            ("V3j", "-- VISUAL LINE --"),
            ("\x1b:split\rG", "line_120 ="),
            ("onew 漢字 😀 text", "new 漢字"),
        ],
        &[(" and more", "text and more"), ("\x1bu:set number\r", "118 "), ("gg\x06\x06", "line_40")],
    );
}

#[test]
fn less_looks_the_same() {
    compare(
        "less",
        "exec less -R coloured",
        &[("", "line 35"), ("  ", "line 105"), ("/9.*本\r", "line 79"), ("k", "line 78")],
        &[("5j", "line 83"), ("G", "line 120"), ("g", "line 1 ")],
    );
}

#[test]
fn htop_looks_the_same() {
    compare(
        "htop",
        "exec htop --delay 100",
        &[("h", "Press any key to return")],
        &[(" h", "Press any key to return")],
    );
}

#[test]
fn tmux_looks_the_same() {
    compare(
        "tmux",
        "exec tmux -S \"$PWD/socket\" -f tmux.conf new-session -s shared -n window",
        &[
            ("", "[shared]"),
            ("cat coloured\r", "line 120"),
            ("\x02%", "│$"),
            ("head -n 5 text.c\r", "line_5 ="),
            ("\x02\"", "──"),
        ],
        &[("echo do''ne\r", "done"), ("\x02:", ":"), ("display-message he''re\r", "here"), ("\x02z", "done")],
    );
}
