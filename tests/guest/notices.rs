//! What programs say to their user, through their terminal and through `abx notify`.

use std::process::{Command, Output};

use abx::guest::wire::{Kind, Notice, Payload};

use super::talk::sh;
use super::talk::{Talk, terminal};
use super::{ABX_INIT, Guest, until};

/// An `abx-init` that listens at this name, and the directory with its other name.
fn guest(name: &str) -> (Guest, tempfile::TempDir) {
    let tools = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(ABX_INIT, tools.path().join("abx")).unwrap();
    (Guest::start_with(&["--listen", name]), tools)
}

fn name(of: &str) -> String {
    format!("abx-test-{of}-{}", std::process::id())
}

/// The next notice, among whatever else belongs to no request.
fn notice(talk: &mut Talk) -> Notice {
    loop {
        let (kind, payload) = talk.receive(0);
        if kind == Kind::Notice {
            return Notice::decode(&payload).unwrap();
        }
    }
}

fn said(source: u8, state: u8, title: &str, body: &str) -> Notice {
    Notice { exec: "1".to_owned(), source, state, title: title.to_owned(), body: body.to_owned() }
}

fn notify(tools: &tempfile::TempDir, arguments: &[&str]) -> Output {
    Command::new(tools.path().join("abx")).args(arguments).output().unwrap()
}

#[test]
fn what_a_terminal_says_is_told_though_it_comes_in_pieces() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    // Each piece is on its way before the next is written.
    let script = r#"
        stty -echo -onlcr; piece() { printf '%b' "$1"; read -r next; }
        piece 'go\a'; piece '\033]'; piece '9;whi'; piece 'ch?'; piece '\033'; piece '\\\\x'
        piece '\033]99;i=1:d=0;ti'; piece 'tle\033\\\\\033]99;i=1:p=body;bo'; piece 'dy\a'
        piece '\033]777;notify;a;b\a\033]9;4;1;10\a'; piece '\033]9;4;0\a'; exit 3"#;
    let (stream, _) = talk.start(&terminal("1", "main", script));
    talk.read_to(stream, b"go\x07");
    let go_on = |talk: &mut Talk, pieces| (0..pieces).for_each(|_| talk.send(Kind::Input, stream, b"\n"));
    go_on(&mut talk, 9);
    let want = [
        said(Notice::BELL, Notice::WAITING, "", ""),
        said(Notice::OSC9, Notice::WAITING, "", "which?"),
        said(Notice::OSC99, Notice::WAITING, "title", "body"),
        said(Notice::OSC777, Notice::WAITING, "a", "b"),
        said(Notice::PROGRESS, Notice::WORKING, "", ""),
    ];
    for want in want {
        assert_eq!(notice(&mut talk), want);
    }
    go_on(&mut talk, 2);
    assert_eq!(notice(&mut talk), said(Notice::PROGRESS, Notice::NOTHING, "", ""));
}

#[test]
fn nobody_need_be_there_to_hear_and_what_was_said_meanwhile_is_told_then() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = r"echo go; read -r x; printf '\033]9;anybody?\a'; sleep 1000";
    let run = abx::guest::wire::Run { detached: true, ..terminal("1", "main", script) };
    let (stream, _) = talk.start(&run);
    talk.read_to(stream, b"go\r\n");
    talk.send(Kind::Input, stream, b"\n");
    drop(talk);
    let mut talk = guest.connect();
    assert_eq!(notice(&mut talk), said(Notice::OSC9, Notice::WAITING, "", "anybody?"));
}

#[test]
fn a_command_calls_abx_and_its_notice_is_known_to_be_its_own() {
    let (guest, tools) = guest(&name("own"));
    let mut talk = guest.connect();
    let call = format!("{}/abx notify --to {} --state idle 'all done'", tools.path().display(), name("own"));
    let done = talk.run(&sh("1", &format!("env -i ABX_EXEC_ID=1 {call} && echo told")));
    assert_eq!((done.text(), done.exited.code), ("told\n", 0), "{:?}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(notice(&mut talk), said(Notice::COMMAND, Notice::IDLE, "", "all done"));
}

#[test]
fn who_is_of_no_command_is_heard_too_and_a_flood_is_refused() {
    let (guest, tools) = guest(&name("flood"));
    let mut talk = guest.connect();
    let call = || notify(&tools, &["notify", "--to", &name("flood")]);
    assert!(
        until("abx-init to listen", || Some(call()).filter(|out| out.status.success())).stderr.is_empty()
    );
    let want = Notice { exec: String::new(), ..said(Notice::COMMAND, Notice::WAITING, "", "") };
    assert_eq!(notice(&mut talk), want);
    let refused = until("one to be too many", || Some(call()).filter(|out| !out.status.success()));
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&refused.stderr), "abx: too much was said in the last second\n");
}

#[test]
fn under_its_users_name_it_does_nothing_else_and_says_so() {
    let (_guest, tools) = guest(&name("else"));
    let usage = "abx notify [--state working|waiting|idle|done] [TEXT]\n";
    for arguments in [&["init"][..], &["ls"], &[]] {
        let out = notify(&tools, arguments);
        assert_eq!(out.status.code(), Some(2));
        assert_eq!(
            String::from_utf8_lossy(&out.stderr),
            format!("abx: in a sandbox, abx knows this alone: {usage}")
        );
    }
    let out = notify(&tools, &["notify", "--to", "abx-test-nobody"]);
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.starts_with("abx: abx-init does not answer in this sandbox"), "{text}");
}
