//! Commands on the real engine.

use abx::engine::docker::start_failure;
use abx::engine::{Chunk, Engine, EngineError, ExecSpec, ExecState, WindowSize};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

use crate::support::engine::{TestHome, command, docker, finish, run};

const SIZE: WindowSize = WindowSize { cols: 91, rows: 33 };

macro_rules! sandbox {
    ($home:ident, $id:ident) => {
        let Some($home) = TestHome::new().await else { return };
        let $id = $home.run(&$home.spec("x")).await.id;
    };
}

#[tokio::test]
async fn output_is_split_and_the_code_is_the_commands_own() {
    sandbox!(home, id);
    for (script, code) in [("echo out; echo err >&2", 0), ("exit 3", 3), ("kill -9 $$", 137)] {
        let ran = run(&home.engine, &id, &command(&["sh", "-c", script])).await;
        assert_eq!(ran.state, ExecState::Exited(code), "{script}");
        if code == 0 {
            assert_eq!((&ran.stdout[..], &ran.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        }
    }
}

#[tokio::test]
async fn a_command_that_cannot_start_says_so_with_and_without_a_terminal() {
    sandbox!(home, id);
    for tty in [None, Some(SIZE)] {
        for (argv, code) in [("nosuch", 127), ("/nosuch/x", 127), ("/etc/passwd", 126), ("/tmp", 126)] {
            let ran = run(&home.engine, &id, &ExecSpec { tty, ..command(&[argv]) }).await;
            let text = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
            assert_eq!(ran.state, ExecState::NotStarted(code), "{argv} tty {tty:?}: {text}");
            assert_eq!(start_failure(&text), Some(code), "{text}");
        }
        let nowhere = ExecSpec { tty, cwd: Some("/nosuch".to_owned()), ..command(&["true"]) };
        let ran = run(&home.engine, &id, &nowhere).await;
        assert_eq!(ran.state, ExecState::NotStarted(126), "{}", String::from_utf8_lossy(&ran.stdout));
    }
}

#[tokio::test]
async fn a_user_that_the_sandbox_does_not_know_is_said_so() {
    sandbox!(home, id);
    for tty in [None, Some(SIZE)] {
        let spec = ExecSpec { user: Some("nobody-here".to_owned()), tty, ..command(&["true"]) };
        let ran = run(&home.engine, &id, &spec).await;
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!((ran.state, start_failure(&text)), (ExecState::NotStarted(126), Some(126)), "{text}");
        assert!(text.contains("nobody-here"), "{text}");
    }
}

#[tokio::test]
async fn codes_of_126_and_127_that_a_program_gives_itself_are_its_own() {
    sandbox!(home, id);
    for tty in [None, Some(SIZE)] {
        for code in [126, 127] {
            let script = format!("echo OCI runtime exec failed: not found; exit {code}");
            let ran = run(&home.engine, &id, &ExecSpec { tty, ..command(&["sh", "-c", &script]) }).await;
            if tty.is_none() {
                assert_eq!(ran.state, ExecState::Exited(code));
            }
            let quiet = ["sh", "-c", &format!("exit {code}")];
            let ran = run(&home.engine, &id, &ExecSpec { tty, ..command(&quiet) }).await;
            assert_eq!(ran.state, ExecState::Exited(code), "tty {tty:?}");
        }
    }
}

#[tokio::test]
async fn the_end_of_input_reaches_the_command_and_its_late_output_still_comes() {
    sandbox!(home, id);
    let script = "cat; sleep 0.3; echo late; echo late err >&2";
    let spec = ExecSpec { stdin: true, ..command(&["sh", "-c", script]) };
    let mut io = home.engine.exec(&id, &spec).await.expect("starts");
    let mut input = io.input.take().expect("has input");
    input.write_all(b"early\n").await.expect("written");
    input.shutdown().await.expect("ended");
    let ran = finish(&home.engine, io).await.expect("ends");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "early\nlate\n");
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "late err\n");
    assert_eq!(ran.state, ExecState::Exited(0));
}

#[tokio::test]
async fn sixty_four_mebibytes_go_in_and_come_back_the_same() {
    const BYTES: usize = 64 * 1024 * 1024;
    sandbox!(home, id);
    let mut io = home.engine.exec(&id, &ExecSpec { stdin: true, ..command(&["cat"]) }).await.expect("starts");
    let mut input = io.input.take().expect("has input");
    // A period that is no power of two shows lost, doubled and swapped pieces.
    let byte = |at: usize| u8::try_from(at % 251).expect("small");
    let feed = tokio::spawn(async move {
        let mut at = 0;
        while at < BYTES {
            let piece: Vec<u8> = (at..BYTES.min(at + 100_000)).map(byte).collect();
            input.write_all(&piece).await.expect("written");
            at += piece.len();
        }
        input.shutdown().await.expect("ended");
    });
    let mut at = 0;
    while let Some(chunk) = io.output.next().await {
        let Chunk::Stdout(bytes) = chunk.expect("output") else { panic!("an error output") };
        assert!(bytes.iter().enumerate().all(|(n, b)| *b == byte(at + n)), "wrong bytes after {at}");
        at += bytes.len();
    }
    feed.await.expect("fed");
    assert_eq!(at, BYTES);
}

#[tokio::test]
async fn a_terminals_output_that_looks_like_a_frame_comes_out_whole() {
    sandbox!(home, id);
    for script in [
        r"printf '\001\000\000\000\000\000\000\005abc'",
        r"printf '\000x'",
        r"printf '\002\n'; printf '\000\001\002'",
    ] {
        let spec = ExecSpec { tty: Some(SIZE), ..command(&["sh", "-c", script]) };
        let got = run(&home.engine, &id, &spec).await.stdout;
        let want = run(&home.engine, &id, &command(&["sh", "-c", script])).await.stdout;
        let on_terminal: Vec<u8> =
            want.iter().flat_map(|b| if *b == b'\n' { vec![b'\r', b'\n'] } else { vec![*b] }).collect();
        assert_eq!(got, on_terminal, "{script}");
    }
}

#[tokio::test]
async fn a_terminal_has_its_size_before_the_program_starts_and_after_a_resize() {
    sandbox!(home, id);
    let ran = run(&home.engine, &id, &ExecSpec { tty: Some(SIZE), ..command(&["stty", "size"]) }).await;
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "33 91");
    let script = "echo ready; read x; stty size";
    let spec = ExecSpec { tty: Some(SIZE), stdin: true, ..command(&["sh", "-c", script]) };
    let mut io = home.engine.exec(&id, &spec).await.expect("starts");
    let first = io.output.next().await.expect("output").expect("output");
    assert!(matches!(first, Chunk::Stdout(bytes) if bytes.starts_with(b"ready")));
    home.engine.exec_resize(&io.engine_id, WindowSize { cols: 100, rows: 50 }).await.expect("resized");
    io.input.as_mut().expect("has input").write_all(b"\n").await.expect("written");
    let ran = finish(&home.engine, io).await.expect("ends");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("50 100"));
}

#[tokio::test]
async fn a_sandbox_without_a_shell_still_has_terminals() {
    sandbox!(home, id);
    run(&home.engine, &id, &command(&["rm", "/bin/sh"])).await;
    let ran = run(&home.engine, &id, &ExecSpec { tty: Some(SIZE), ..command(&["echo", "hello"]) }).await;
    assert_eq!((&ran.stdout[..], ran.state), (&b"hello\r\n"[..], ExecState::Exited(0)));
}

#[tokio::test]
async fn environment_user_and_directory_are_the_execs_own() {
    sandbox!(home, id);
    let spec = ExecSpec {
        env: vec![("A".to_owned(), "x=y z\nü".to_owned())],
        user: Some("dev".to_owned()),
        cwd: Some("/tmp".to_owned()),
        ..command(&["sh", "-c", "echo \"$A|$ABX_EXEC_ID|$(id -un)|$PWD\""])
    };
    let ran = run(&home.engine, &id, &spec).await;
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), format!("x=y z\nü|{}|dev|/tmp", spec.exec_id));
    assert!(!docker(&["inspect", &id]).contains("x=y z"));
}

#[tokio::test]
async fn a_signal_ends_a_whole_tree_and_nothing_else() {
    sandbox!(home, id);
    let script =
        "sleep 1000 & setsid sh -c 'sleep 1001; true' & nohup sleep 1002 >/dev/null & echo ready; wait";
    for user in [None, Some("dev")] {
        let spec = ExecSpec { user: user.map(str::to_owned), ..command(&["sh", "-c", script]) };
        let mut io = home.engine.exec(&id, &spec).await.expect("starts");
        let mut other =
            home.engine.exec(&id, &command(&["sh", "-c", "echo ready; sleep 2000"])).await.expect("starts");
        for io in [&mut io, &mut other] {
            io.output.next().await.expect("output").expect("output");
        }
        home.engine.exec_signal(&id, &spec.exec_id, user, 9).await.expect("signals");
        let ran = finish(&home.engine, io).await.expect("its output ends");
        assert_eq!(ran.state, ExecState::Exited(137));
        let left =
            run(&home.engine, &id, &command(&["sh", "-c", "ps | grep 'sleep 100[0-9]' | grep -v grep"]))
                .await;
        assert_eq!(String::from_utf8_lossy(&left.stdout), "");
        assert_eq!(home.engine.exec_state(&other.engine_id).await.expect("known"), ExecState::Running);
        home.engine
            .exec_signal(&id, &spec.exec_id, user, 9)
            .await
            .expect("nothing is there, and that is fine");
        home.engine
            .exec_signal(&id, "never-was", user, 15)
            .await
            .expect("nothing is there, and that is fine");
    }
}

#[tokio::test]
async fn a_signal_right_after_the_start_is_not_lost() {
    sandbox!(home, id);
    let spec = command(&["sleep", "1000"]);
    let io = home.engine.exec(&id, &spec).await.expect("starts");
    home.engine.exec_signal(&id, &spec.exec_id, None, 9).await.expect("signals");
    assert_eq!(finish(&home.engine, io).await.expect("ends").state, ExecState::Exited(137));
}

#[tokio::test]
async fn stopping_the_sandbox_ends_a_running_commands_output() {
    sandbox!(home, id);
    let mut io =
        home.engine.exec(&id, &command(&["sh", "-c", "echo ready; sleep 1000"])).await.expect("starts");
    io.output.next().await.expect("output").expect("output");
    home.engine.stop(&id, std::time::Duration::ZERO).await.expect("stopped");
    let ran = finish(&home.engine, io).await.expect("its output ends");
    assert_eq!(ran.state, ExecState::Exited(137));
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_or_is_gone_takes_no_command() {
    sandbox!(home, id);
    home.engine.pause(&id).await.expect("paused");
    for expected in ["paused", "stopped"] {
        let Err(error) = home.engine.exec(&id, &command(&["true"])).await else {
            panic!("it ran while {expected}")
        };
        assert!(matches!(error, EngineError::Conflict { .. }), "{expected}: {error}");
        home.engine.stop(&id, std::time::Duration::ZERO).await.expect("stopped");
    }
    home.engine.remove(&id).await.expect("removed");
    let Err(error) = home.engine.exec(&id, &command(&["true"])).await else { panic!("it ran in nothing") };
    assert!(matches!(error, EngineError::NoSandbox { .. }), "{error}");
}
