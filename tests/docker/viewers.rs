//! Viewers of one terminal that differ in size and pace, and what they cost.

use nix::sys::signal::Signal;

use super::emulator::Emulator;
use super::shown::Viewer;
use super::terminals::{send, world};
use super::wire::Size;
use crate::support::{World, until};

/// Peak resident memory of a process, in kilobytes.
pub(super) fn peak(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.expect("a size").trim().parse().expect("a number")
}

/// The process of the session's abx-init, as this machine counts.
pub(super) fn init(world: &World) -> String {
    let (id, _) = world.containers().pop().expect("a container");
    crate::support::engine::docker(&["inspect", "--format", "{{.State.Pid}}", &id])
}

#[test]
fn thousands_of_coloured_lines_of_wide_characters_are_painted_with_their_scrollback() {
    const SIZE: Size = Size { cols: 80, rows: 24 };
    let Some(world) = world() else { return };
    let line = |n: u32| {
        format!("\x1b[3{}m{n:5} 漢字かな交じり文 한국어 😀🎉\x1b[48;5;{}m ÄÖÜ \x1b[0m|\r\n", n % 8, n % 256)
    };
    let all: String = (0..9000).map(line).collect();
    std::fs::write(world.home.dir().join("lines"), &all).expect("written");
    world.text(&["cp", world.home.dir().join("lines").to_str().expect("text"), "a:/tmp/lines"]);
    let script = "stty -opost; cat /tmp/lines; printf 'the end'; exec sleep 1000";
    let first = Viewer::attach(&world, (SIZE.cols, SIZE.rows), &["--", "sh", "-c", script]);
    first.terminal.wait_for("the end");
    first.kill();
    let want = Emulator::show(SIZE, format!("{all}the end").as_bytes()).snapshot(1000);
    let mut back = Viewer::attach(&world, (SIZE.cols, SIZE.rows), &["--scrollback", "1000"]);
    back.wait_until_shows(1000, "with scrollback", || want.clone());
    let mut few = Viewer::attach(&world, (SIZE.cols, SIZE.rows), &[]);
    let screen = &want[1000..];
    few.wait_until_shows(0, "without scrollback", || screen.to_vec());
}

#[test]
fn a_frozen_viewer_costs_nobody_time_or_memory_and_is_shown_the_screen_when_it_goes_on() {
    const FLOOD_KB: u64 = 32 * 1024;
    let Some(mut world) = world() else { return };
    let script = format!(
        "stty -echo -opost; echo re''ady; read -r x; head -c {} /dev/zero | tr '\\0' 'x'; \
         printf '\\r\\nend-of-flood'; read -r x; printf '\\r\\nall is %s' well; exec sleep 1000",
        FLOOD_KB * 1024
    );
    let mut frozen = Viewer::attach(&world, (80, 24), &["--", "sh", "-c", &script]);
    frozen.terminal.wait_for("ready");
    let mut quick = Viewer::attach(&world, (80, 24), &[]);
    quick.terminal.wait_for("ready");
    send(&frozen.abx, Signal::SIGSTOP);
    let (daemon, init) = (world.daemon().pid().to_string(), init(&world));
    let before = (peak(&daemon), peak(&init));
    quick.types("");
    let (mut at, mut through) = (0, false);
    while !through {
        let more = || Some(quick.terminal.shown_from(at)).filter(|more| !more.is_empty());
        at += until("the other to get more", more).len();
        let last = quick.terminal.shown_from(at.saturating_sub(64 * 1024));
        through = String::from_utf8_lossy(&last).contains("end-of-flood");
    }
    let after = (peak(&daemon), peak(&init));
    for (what, before, after) in [("abxd", before.0, after.0), ("abx-init", before.1, after.1)] {
        assert!(after < 200 * 1024 && after - before < FLOOD_KB, "{what}: {before} kB, then {after} kB");
    }
    send(&frozen.abx, Signal::SIGCONT);
    frozen.wait_for_line("end-of-flood");
    assert!(frozen.terminal.shown_from(0).len() < 8 * 1024 * 1024, "it was not sent the flood");
    frozen.types("");
    frozen.wait_for_line("all is well");
}

#[test]
fn a_prompt_without_a_line_end_and_the_echo_of_a_key_come_as_they_are() {
    let Some(world) = world() else { return };
    let script = "printf '> '; read -r x; exec sleep 1000";
    let mut viewer = Viewer::attach(&world, (80, 24), &["--", "sh", "-c", script]);
    let first = |viewer: &mut Viewer, text: &str| {
        until(text, || viewer.emulator().text(0).iter().any(|line| line == text).then_some(()));
    };
    first(&mut viewer, ">");
    viewer.terminal.press(b"k");
    first(&mut viewer, "> k");
}

#[test]
fn a_terminal_that_is_not_opened_says_why_and_where_the_log_has_it() {
    let Some(world) = world() else { return };
    let there = Viewer::attach(&world, (80, 24), &["--", "sh", "-c", "echo up; exec sleep 1000"]);
    there.terminal.wait_for("up");
    let mut viewer = Viewer::attach(&world, (80, 24), &["--", "another-command"]);
    assert!(viewer.code().is_some_and(|code| code != 0));
    let shown = viewer.terminal.wait_for("Request:");
    let id = shown.split_whitespace().find(|word| word.starts_with("abx-")).expect("the request's id");
    let log = world.home.log();
    assert!(log.lines().any(|line| line.contains(id) && line.contains("refused")), "{id} in {log}");
}
