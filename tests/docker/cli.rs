//! The command line, a real daemon and a real engine together: what a user types and sees.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::cli::terminal::Terminal;
use crate::support::World;
use crate::support::engine::{busybox_image, docker};

impl World {
    /// The command line of this home.
    pub(crate) fn abx(&self) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_abx"));
        command.env("TERM", "xterm-256color");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.abx().args(args).stdin(Stdio::null()).output().expect("abx runs")
    }

    /// What a command prints, which must succeed.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn code(&self, args: &[&str]) -> Option<i32> {
        self.run(args).status.code()
    }
}

#[test]
fn the_older_tools_users_find_their_commands_and_their_output() {
    let Some(world) = World::new() else { return };
    let image = busybox_image();
    let started = world.text(&[
        "session",
        "start",
        "--name",
        "feature-x",
        "--agent",
        "claude",
        "-B",
        "docker",
        "--image",
        &image,
    ]);
    assert_eq!(
        started,
        "Session 'feature-x' started.\n  Sandbox: session-feature-x\nAttach with: abx attach session-feature-x\n"
    );
    world.text(&["start", "bugfix-123", "--agent", "gemini", "--image", &image]);
    for _ in 0..3 {
        world.text(&["exec", "session-feature-x", "--", "true"]);
    }
    let saved = world.text(&["session", "save", "bugfix-123"]);
    let name =
        saved.strip_prefix("Session 'bugfix-123' saved (snapshot: ").and_then(|s| s.strip_suffix(")\n"));
    let day = name.and_then(|n| n.strip_prefix("bugfix-123-")).expect("the form of the older tool");
    assert!(day.len() == 8 && day.bytes().all(|b| b.is_ascii_digit()), "{day}");
    let list = world.text(&["session", "list"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "NAME                 AGENT      STATUS     DURATION      EXECS");
    assert_eq!(&lines[1][..43], "bugfix-123           gemini     saved      ");
    assert_eq!(&lines[2][..43], "feature-x            claude     running    ");
    assert_eq!(&lines[2][55..], "      3");
    assert_eq!(world.text(&["ls", "-q"]), "bugfix-123\nfeature-x\n");
    assert_eq!(
        world.text(&["session", "delete", "-y", "bugfix-123", "feature-x"]),
        "Session 'bugfix-123' deleted.\nSession 'feature-x' deleted.\n"
    );
    assert_eq!(world.text(&["session", "list"]), "No sessions found.\n");
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let Some(world) = World::new() else { return };
    let image = busybox_image();
    world.text(&["start", "a", "--image", &image]);
    let refused = [
        (&["session", "get", "nobody"][..], 3),
        (&["resume", "a", "--snapshot", "nothing"], 3),
        (&["start", "a"], 4),
        (&["start", "a/b"], 2),
        (&["start"], 2),
        (&["start", "b", "--image", "nowhere.invalid/none:1"], 1),
        (&["start", "b", "-w", "/nonexistent/dir"], 1),
    ];
    for (args, want) in refused {
        assert_eq!(world.code(args), Some(want), "{args:?}");
    }
    for code in [0, 1, 3, 42, 124, 255] {
        assert_eq!(world.code(&["exec", "a", "--", "sh", "-c", &format!("exit {code}")]), Some(code));
    }
    let run = [
        (&["exec", "a", "--", "no-such-command"][..], 127),
        (&["exec", "a", "--", "/etc/passwd"], 126),
        (&["exec", "-w", "/nowhere", "a", "--", "ls"], 126),
        (&["exec", "a", "--", "sh", "-c", "kill -9 $$"], 137),
        (&["exec", "a", "--", "sh", "-c", "kill -TERM $$; sleep 5"], 143),
        (&["exec", "--timeout", "1", "a", "--", "sleep", "60"], 124),
        (&["exec", "nobody", "--", "true"], 125),
    ];
    for (args, want) in run {
        assert_eq!(world.code(args), Some(want), "{args:?}");
    }
    let line =
        String::from_utf8(world.run(&["exec", "-w", "/nowhere", "a", "--", "ls"]).stderr).expect("text");
    assert!(line.contains("/nowhere"), "{line}");
}

#[test]
fn sixty_four_mebibytes_go_through_cat_and_come_back_the_same() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let bytes: Vec<u8> =
        (0..64 * 1024 * 1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = world
        .abx()
        .args(["exec", "-i", "a", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("abx runs");
    let mut stdin = child.stdin.take().expect("piped");
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(&bytes).expect("abx reads");
            drop(stdin);
        });
        child.wait_with_output().expect("abx ends")
    });
    assert!(back.status.success());
    assert!(back.stdout == bytes, "{} of {} bytes came back, or other ones", back.stdout.len(), bytes.len());
}

#[test]
fn input_that_is_never_read_and_input_that_is_empty_hold_nothing_up() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let zero = std::fs::File::open("/dev/zero").expect("there");
    let status = world.abx().args(["exec", "-i", "a", "--", "true"]).stdin(zero).status().expect("abx runs");
    assert!(status.success());
    assert_eq!(world.text(&["exec", "-i", "a", "--", "cat"]), "");
    assert_eq!(world.text(&["exec", "a", "--", "sh", "-c", "cat; echo done"]), "done\n");
}

#[test]
fn a_stop_ends_a_running_command_with_its_reason() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let child = world
        .abx()
        .args(["exec", "a", "--", "sh", "-c", "echo up; sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("abx runs");
    let mut child = child;
    let mut up = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut up).expect("it runs");
    world.text(&["stop", "a"]);
    let output = child.wait_with_output().expect("it ends");
    assert!(matches!(output.status.code(), Some(137 | 143)), "{:?}", output.status);
    let line = String::from_utf8(output.stderr).expect("text");
    assert!(line.contains("session 'a'") && line.contains("stopped"), "{line}");
}

#[test]
fn a_client_that_vanishes_takes_its_command_along() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let mut child = world
        .abx()
        .args(["exec", "a", "--", "sh", "-c", "echo up; sleep 4321"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("abx runs");
    let mut up = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut up).expect("it runs");
    child.kill().expect("ours");
    child.wait().expect("ours");
    crate::support::until("the command to end", || {
        (!world.text(&["exec", "a", "--", "ps"]).contains("4321")).then_some(())
    });
}

#[test]
fn attach_is_a_terminal_of_the_right_size_that_is_left_by_its_keys_and_restored() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let mut terminal = Terminal::new();
    let before = terminal.modes();
    let mut command = world.abx();
    command.args(["attach", "a", "--", "sh", "-c", "stty size; echo $TERM $LANG; exec sh"]);
    let mut child = terminal.spawn(command);
    terminal.wait_for("24 80");
    terminal.wait_for("xterm-256color C.UTF-8");
    terminal.press(b"echo ans$((40+2))er\r");
    terminal.wait_for("ans42er");
    terminal.press(b"\x1dd");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(terminal.modes().local_flags, before.local_flags);
    assert!(!world.field("a", "last_connected").is_null());
    assert_eq!(world.field("a", "exec_count"), 0);
}

#[test]
fn attach_ends_with_the_programs_code_and_says_why_when_it_is_not_its_own() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let terminal = Terminal::new();
    let mut command = world.abx();
    command.args(["attach", "a", "--", "sh", "-c", "exit 42"]);
    assert_eq!(terminal.spawn(command).wait().expect("it ends").code(), Some(42));
    let terminal = Terminal::new();
    let mut command = world.abx();
    command.args(["attach", "a", "--", "sh", "-c", "echo up; sleep 600"]);
    let mut child = terminal.spawn(command);
    terminal.wait_for("up");
    docker(&["rm", "-f", world.field("a", "sandbox_id").as_str().expect("an id")]);
    assert!(matches!(child.wait().expect("it ends").code(), Some(137 | 143)));
    terminal.wait_for("removed outside abx");
}

#[test]
fn a_daemon_is_started_for_whoever_needs_one_and_its_sessions_outlive_it() {
    let Some(mut world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    world.text(&["daemon", "stop"]);
    world.daemon().wait();
    assert_eq!(world.code(&["--no-autostart", "ls"]), Some(6));
    assert!(world.text(&["ls"]).contains("a                    claude     running"));
    assert_eq!(world.text(&["exec", "a", "--", "echo", "alive"]), "alive\n");
    world.text(&["daemon", "stop"]);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_command_behind_it() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let mut child =
        world.abx().args(["exec", "a", "--", "yes"]).stdout(Stdio::piped()).spawn().expect("abx runs");
    let mut seen = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut seen).expect("it runs");
    drop(child.stdout.take());
    child.wait().expect("ours");
    crate::support::until("the command to end", || {
        (!world.text(&["exec", "a", "--", "ps"]).contains("yes")).then_some(())
    });
}

#[test]
fn time_runs_out_for_a_command_whose_output_nobody_reads() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let mut child = world
        .abx()
        .args(["exec", "--timeout", "1", "a", "--", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("abx runs");
    let mut seen = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut seen).expect("it runs");
    crate::support::until("the command to end", || {
        (!world.text(&["exec", "a", "--", "ps"]).contains("yes")).then_some(())
    });
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(124));
}

#[test]
fn a_command_that_hides_from_its_end_does_not_hold_up_who_waits_for_it() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    let hidden = ["exec", "--timeout", "1", "a", "--", "env", "-i", "/bin/sleep", "4321"];
    assert_eq!(world.code(&hidden), Some(124));
    let params = serde_json::json!({"session": "a", "cmd": &hidden[5..], "timeout": 1000});
    assert_eq!(world.call("exec.run", params)["exit_code"], 124);
}

#[test]
fn a_command_waits_for_a_save_that_keeps_the_session_running() {
    let Some(mut world) = World::new() else { return };
    let go = world.home.root().join("go");
    world.restart(Some(&format!("commit.before=pause:{}", go.display())));
    world.text(&["start", "a", "--image", &busybox_image()]);
    let id = world.field("a", "sandbox_id");
    let frozen = || {
        let seen = docker(&["inspect", "-f", "{{.State.Paused}}", id.as_str().expect("an id")]);
        (seen == "true").then_some(())
    };
    let abx = |args: &'static [&str]| world.abx().args(args).output().expect("abx runs");
    std::thread::scope(|scope| {
        let save = scope.spawn(|| abx(&["save", "a", "--keep-running"]));
        // Whatever fails here, the save must be let go, or the test never ends.
        let seen = std::panic::catch_unwind(|| crate::support::until("the sandbox to be frozen", frozen));
        let run = scope.spawn(|| abx(&["exec", "a", "--", "echo", "alive"]));
        // Its row comes before it is started; had it run in the frozen sandbox, it would hang on after the thaw.
        let noted = std::panic::catch_unwind(|| {
            crate::support::until("it to be asked for", || {
                let listed = world.call("exec.list", serde_json::json!({"session": "a"}));
                listed.as_array().is_some_and(|all| !all.is_empty()).then_some(())
            })
        });
        let waits = noted.is_ok() && !run.is_finished();
        std::fs::write(&go, "").expect("write");
        assert!(save.join().expect("ends").status.success());
        assert_eq!(run.join().expect("ends").stdout, b"alive\n");
        assert!(seen.is_ok() && waits, "it ran in a frozen sandbox");
    });
}

#[test]
fn commands_and_saves_at_the_same_time_never_hang_the_engine() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    std::thread::scope(|scope| {
        let saves = scope.spawn(|| {
            for _ in 0..3 {
                world.text(&["save", "a", "--keep-running"]);
            }
        });
        while !saves.is_finished() {
            assert_eq!(world.text(&["exec", "a", "--", "echo", "alive"]), "alive\n");
        }
        saves.join().expect("saved");
    });
    world.text(&["pause", "a"]);
    let refused = world.run(&["exec", "--no-resume", "a", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    let line = String::from_utf8(refused.stderr).expect("text");
    assert!(line.contains("abx session unpause a"), "{line}");
}

#[test]
fn a_detached_command_that_is_not_there_is_told_and_a_time_of_zero_is_no_limit() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    assert_eq!(world.code(&["exec", "-d", "a", "--", "no-such-command"]), Some(127));
    assert_eq!(world.code(&["exec", "-d", "a", "--", "sleep", "4321"]), Some(0));
    assert_eq!(world.text(&["exec", "--timeout", "0", "a", "--", "sh", "-c", "sleep 1; echo hi"]), "hi\n");
}

#[test]
fn keys_of_the_engine_reach_the_program_and_what_is_left_goes_on_and_keeps_its_session_busy() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image(), "--idle", "3"]);
    let mut terminal = Terminal::new();
    let mut command = world.abx();
    let script = "stty raw -echo; echo up; od -An -tx1 -N2; while :; do echo tick; sleep 0.5; done";
    command.args(["attach", "a", "--", "sh", "-c", script]);
    let mut child = terminal.spawn(command);
    terminal.wait_for("up");
    terminal.press(b"\x10\x11");
    terminal.wait_for("10 11");
    terminal.wait_for("tick");
    terminal.press(b"\x1dd");
    assert!(child.wait().expect("it ends").success());
    let left = std::time::Instant::now();
    crate::support::until("two idle times to pass", || (left.elapsed().as_secs() >= 6).then_some(()));
    assert_eq!(world.field("a", "status"), "running", "its terminal still writes");
}
