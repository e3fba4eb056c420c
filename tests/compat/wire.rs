//! What sandboxes that are running already say, and are told: an abx-init is as old as its sandbox.

use std::fmt::Debug;

use abx::guest::wire::{
    Credit, Entry, Exited, Failed, Follow, Following, Hello, Notice, Oom, Payload, Peek, Run, Screen, Signal,
    Size, Started, Welcome,
};

const SIZE: Size = Size { cols: 80, rows: 24 };

/// A payload of the fixture.
fn payload(name: &str) -> Vec<u8> {
    let lines = include_str!("wire-v2.txt").lines();
    let hex = lines.filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == name).expect("a payload").1;
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// The newest code reads it as it was meant, says the same in words that the oldest reads so too, and reads past what a
/// newer version adds.
fn holds<T: Payload + PartialEq + Debug>(name: &str, meant: &T) {
    let bytes = payload(name);
    assert_eq!(T::decode(&bytes).as_ref(), Ok(meant), "{name}");
    assert!(meant.encode().starts_with(&bytes), "{name} is said otherwise");
    let newer = [&bytes[..], b"a newer field"].concat();
    // What stands behind the fields of version 2 is a newer version's, and it must hold its first bytes as they are.
    if meant.encode().len() == bytes.len() {
        assert_eq!(T::decode(&newer).as_ref(), Ok(meant), "{name} of a newer version");
    }
}

#[test]
fn what_is_told_to_a_sandbox_of_the_first_version_holds() {
    holds("Welcome", &Welcome { version: 2 });
    let run = Run {
        id: "0192".to_owned(),
        argv: vec![b"sh".to_vec(), b"-c".to_vec(), vec![0xff]],
        env: vec![b"A=b=c".to_vec()],
        cwd: Some(b"/w".to_vec()),
        user: Some("dev:dev".to_owned()),
        tty: Some(SIZE),
        terminal: "main".to_owned(),
        stdin: true,
        detached: true,
        keep: 1 << 20,
        window: 1 << 16,
        orphan_ms: 60_000,
        scrollback: 1000,
    };
    holds("Run", &run);
    let follow = Follow {
        id: "main".to_owned(),
        stdout_from: 3,
        stderr_from: 4,
        window: 1 << 16,
        writes: true,
        size: Some(SIZE),
        scrollback: 9,
    };
    holds("Follow", &follow);
    holds("Credit", &Credit { bytes: 65_536 });
    holds("Size", &SIZE);
    holds("Signal", &Signal { id: "0192".to_owned(), signal: 15 });
    holds("Peek", &Peek { id: "main".to_owned(), scrollback: 9 });
}

#[test]
fn what_a_sandbox_of_the_first_version_says_is_understood() {
    holds("Hello", &Hello { oldest: 2, newest: 2, build: "abx-init 0.1.0".to_owned(), uid: 1000 });
    holds("Started", &Started { pid: 7 });
    holds("Failed", &Failed { why: Failed::NOT_FOUND, text: "sh: not found".to_owned() });
    let following = Following { id: "0192".to_owned(), stdout_from: 3, stderr_from: 4, size: None };
    holds("Following", &following);
    holds("Exited", &Exited { code: 137, signal: 9, oom: true, stdout: 5, stderr: 6 });
    let entry = Entry {
        id: "0192".to_owned(),
        terminal: "main".to_owned(),
        argv: vec![b"sh".to_vec()],
        pid: 7,
        started_ms: 1_769_904_000_123,
        ended: Some(Exited { code: -1, signal: 0, oom: false, stdout: 5, stderr: 6 }),
        ended_ms: 1_769_904_100_000,
        stdout: 5,
        stderr: 6,
        dropped: 2,
        followers: 1,
        size: Some(SIZE),
    };
    holds("Entry", &entry);
    let screen = Screen {
        lines: vec!["$ ls".to_owned(), "数据".to_owned()],
        scrollback: 1,
        size: SIZE,
        column: 2,
        row: 3,
        cursor_visible: true,
        alternate: true,
        title: "title".to_owned(),
    };
    holds("Screen", &screen);
    holds("Oom", &Oom { kills: 2 });
    let notice = Notice {
        exec: "0192".to_owned(),
        source: Notice::OSC777,
        state: Notice::WAITING,
        title: "claude".to_owned(),
        body: "which?".to_owned(),
    };
    holds("Notice", &notice);
}

#[test]
fn a_payload_that_ends_before_a_field_that_was_added_later_has_its_default() {
    // As if its last two fields were younger than whoever sent it.
    let whole = payload("Exited");
    let older = Exited { code: 137, signal: 9, oom: true, ..Exited::default() };
    assert_eq!(Exited::decode(&whole[..whole.len() - 16]), Ok(older));
    assert!(
        Exited::decode(&whole[..whole.len() - 1]).is_err(),
        "a field that is cut off is no older version's"
    );
}
