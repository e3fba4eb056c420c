//! What is understood, and where options may stand.

use super::*;

fn parse_words(words: &[&str]) -> Result<Cli, clap::Error> {
    parse(std::iter::once("abx").chain(words.iter().copied()).map(OsString::from))
}

fn cli(words: &[&str]) -> Cli {
    parse_words(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

#[test]
fn the_grammar_is_consistent() {
    command().debug_assert();
}

#[test]
fn session_verbs_work_with_and_without_the_word() {
    for words in [&["session", "list"][..], &["session", "ls"], &["list"], &["ls"]] {
        assert!(
            matches!(
                cli(words).command,
                Some(Command::Session(SessionCommand::List(_)) | Command::Direct(SessionCommand::List(_)))
            ),
            "{words:?}"
        );
    }
    for words in [&["session", "rm", "x", "-y"][..], &["delete", "x", "y"], &["rm", "x"]] {
        assert!(
            matches!(
                cli(words).command,
                Some(
                    Command::Session(SessionCommand::Delete { .. })
                        | Command::Direct(SessionCommand::Delete { .. })
                )
            ),
            "{words:?}"
        );
    }
}

#[test]
fn common_options_stand_before_and_after_the_command() {
    for words in [
        &["--json", "-q", "-v", "--no-autostart", "--home", "/h", "--socket", "/s", "list"][..],
        &["list", "--json", "-q", "-v", "--no-autostart", "--home", "/h", "--socket", "/s"],
        &["session", "--json", "list", "-q", "--no-autostart", "--home", "/h", "--socket", "/s", "-v"],
    ] {
        let global = cli(words).top.global;
        assert!(global.json && global.quiet && global.verbose && global.no_autostart, "{words:?}");
        assert_eq!(global.home, Some("/h".into()));
        assert_eq!(global.socket, Some("/s".into()));
    }
}

#[test]
fn v_is_a_volume_for_start_and_verbose_elsewhere() {
    let Cli { top: Top { global, .. }, command } = cli(&["-v", "start", "x", "-v", "a:/b"]);
    assert!(global.verbose);
    let Some(Command::Direct(SessionCommand::Start(start))) = command else { panic!("{command:?}") };
    assert_eq!(start.volume, ["a:/b"]);
    assert!(!cli(&["start", "x", "-v", "a:/b"]).top.global.verbose);
    assert!(cli(&["start", "x", "--verbose"]).top.global.verbose);
}

#[test]
fn a_session_is_named_by_word_or_by_option_but_not_by_both() {
    for words in [&["start", "x"][..], &["session", "start", "--name", "x", "-B", "docker"]] {
        let command = cli(words).command;
        let Some(Command::Direct(SessionCommand::Start(s)) | Command::Session(SessionCommand::Start(s))) =
            command
        else {
            panic!("{words:?}")
        };
        assert_eq!(s.name.or(s.named).as_deref(), Some("x"));
    }
    assert!(parse_words(&["start"]).is_err());
    assert!(parse_words(&["start", "x", "--name", "y"]).is_err());
}

#[test]
fn exec_takes_everything_after_the_name_or_the_dashes() {
    let exec = |words: &[&str]| {
        let command = cli(words).command;
        let Some(Command::Exec(ExecArgs { run: Some(exec), .. })) = command else { panic!("{words:?}") };
        exec
    };
    for (words, want) in [
        (&["exec", "s", "--", "ls", "-la"][..], &["ls", "-la"][..]),
        (&["exec", "s", "ls", "-la"], &["ls", "-la"]),
        (&["exec", "s", "sh", "-c", "x", "--", "y"], &["sh", "-c", "x", "--", "y"]),
        (&["exec", "s", "--", "sh", "-c", "x", "--", "y"], &["sh", "-c", "x", "--", "y"]),
        (&["exec", "s", "--", "--json"], &["--json"]),
        (&["exec", "s", "grep", "-i", "--json"], &["grep", "-i", "--json"]),
    ] {
        let exec = exec(words);
        assert_eq!(
            (exec.name.as_str(), exec.cmd.as_slice()),
            ("s", &want.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]),
            "{words:?}"
        );
        assert!(!exec.interactive, "{words:?}");
    }
    let exec = exec(&["exec", "-it", "-e", "A=1", "-w", "/x", "-u", "me", "--timeout", "1m", "s", "--", "c"]);
    assert!(exec.interactive && exec.tty);
    assert_eq!(
        (exec.timeout, exec.workdir.as_deref(), exec.user.as_deref()),
        (Some(60_000), Some("/x"), Some("me"))
    );
    assert!(parse_words(&["exec", "s"]).is_err());
    assert!(parse_words(&["exec", "-d", "-t", "s", "--", "c"]).is_err());
}

#[test]
fn what_cannot_be_is_wrong_usage_and_lists_what_can() {
    for (words, want) in [
        (&["start", "x", "-B", "podman"][..], "docker"),
        (&["start", "x", "--profile", "none"], "restrictive"),
        (&["list", "--status", "asleep"], "running"),
        (&["start", "x", "--timeout", "soon"], "30m"),
        (&["start", "x", "--memory", "much"], "512m"),
        (&["attach", "x", "--detach-keys", "meta-x"], "ctrl-"),
    ] {
        let error = parse_words(words).expect_err("wrong").to_string();
        assert!(error.contains(want), "{words:?}: {error}");
    }
    assert!(parse_words(&["update", "x"]).is_err());
    assert!(parse_words(&["stop"]).is_err());
}

#[test]
fn attach_takes_a_command_after_the_dashes_only() {
    let Some(Command::Attach(attach)) = cli(&["attach", "x", "--", "top", "-d"]).command else { panic!() };
    assert_eq!(attach.cmd, ["top", "-d"]);
    assert_eq!(attach.detach_keys.to_string(), "ctrl-] d");
    assert!(parse_words(&["attach", "x", "top"]).is_err());
    assert!(parse_words(&["attach", "x", "--agent", "--", "top"]).is_err());
    assert!(parse_words(&["attach", "x", "--fresh", "--", "top"]).is_err());
}

#[test]
fn a_command_line_that_does_not_parse_may_still_ask_for_json() {
    let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    assert!(wants_json(&args(&["abx", "--json", "nonsense"])));
    assert!(!wants_json(&args(&["abx", "exec", "--", "--json"])));
}

#[test]
fn a_verb_alone_reads_its_line_as_the_whole_grammar_does() {
    for words in [
        &["ls"][..],
        &["list", "--json", "--status", "running", "-q"],
        &["rm", "-y", "a", "b", "-v"],
        &["start", "x", "-v", "/a:/b", "-e", "K=V", "--home", "/h", "--verbose"],
        &["save", "x", "--keep-running", "--no-autostart"],
        &["exec", "-v", "x", "--", "make", "-v", "--json"],
        &["exec", "logs", "-f", "019", "-q"],
        &["attach", "x", "--terminal", "t", "--", "vi"],
    ] {
        let args: Vec<OsString> = ["abx"].iter().chain(words).map(OsString::from).collect();
        let narrow = verb_alone(&args).expect("a verb").try_get_matches_from(&args).expect("parses");
        let whole = command().try_get_matches_from(&args).expect("parses");
        let read = |matches: &ArgMatches| {
            let cli = Cli::from_arg_matches(matches).expect("a command");
            (format!("{cli:?}"), short_verbose(matches))
        };
        assert_eq!(read(&narrow), read(&whole), "{words:?}");
    }
    let first = |words: &[&str]| verb_alone(&words.iter().map(OsString::from).collect::<Vec<_>>()).is_some();
    assert!(!first(&["abx", "--json", "ls"]) && !first(&["abx", "cp", "x"]) && !first(&["abx"]));
}

#[test]
fn exec_runs_a_command_or_looks_after_those_that_were_started() {
    let asked = |words: &[&str]| match cli(words).command {
        Some(Command::Exec(ExecArgs { command: Some(command), run: None })) => format!("{command:?}"),
        Some(Command::Exec(ExecArgs { command: None, run: Some(run) })) => {
            format!("{} {:?}", run.name, run.cmd)
        }
        other => panic!("{words:?}: {other:?}"),
    };
    for (words, want) in [
        (&["exec", "a", "--", "make"][..], r#"a ["make"]"#),
        (&["exec", "-t", "a", "make", "-j"], r#"a ["make", "-j"]"#),
        (&["exec", "list"], "List { name: None }"),
        (&["exec", "ls", "a"], r#"List { name: Some("a") }"#),
        (&["exec", "list", "--", "make"], r#"list ["make"]"#),
        (&["--json", "exec", "-i", "logs", "--", "kill", "1"], r#"logs ["kill", "1"]"#),
        (&["exec", "logs", "-f", "019"], r#"Logs { follow: true, id: "019" }"#),
        (&["exec", "kill", "-s", "int", "019"], r#"Kill { signal: Some(2), id: "019" }"#),
        (&["exec", "wait", "--timeout", "2s", "019"], r#"Wait { timeout: Some(2000), id: "019" }"#),
    ] {
        assert_eq!(asked(words), want, "{words:?}");
    }
    assert!(parse_words(&["exec", "a"]).is_err(), "a command is missing");
}
