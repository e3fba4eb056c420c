//! Tables of what may be typed.

use super::*;

fn vars(name: &str) -> Option<String> {
    (name == "SET").then(|| "from the shell".to_owned())
}

#[test]
fn ports_are_container_or_host_and_container() {
    let port = |container, host, protocol: &str| Ok(Port { container, host, protocol: protocol.to_owned() });
    for (text, want) in [
        ("80", port(80, None, "tcp")),
        ("8080:80", port(80, Some(8080), "tcp")),
        ("0:80", port(80, None, "tcp")),
        (":80", port(80, None, "tcp")),
        ("53:53/udp", port(53, Some(53), "udp")),
        ("80/TCP", port(80, None, "tcp")),
        ("127.0.0.1:8080:80", port(80, Some(8080), "tcp")),
        ("[::1]:8080:80", port(80, Some(8080), "tcp")),
        ("127.0.0.1::80", port(80, None, "tcp")),
    ] {
        assert_eq!(parse_port(text), want, "{text}");
    }
    for text in ["", "0", "http", "65536", "-1", "80/sctp", "0.0.0.0:80:80", "80:", "1:2:3:4", "80-90"] {
        assert!(parse_port(text).is_err(), "{text}");
    }
}

#[test]
fn a_workspace_that_exists_under_the_whole_text_wins() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    for name in ["a", "a:ro", "b:/x", "c"] {
        std::fs::create_dir_all(path(name)).expect("create");
    }
    let parsed = |text: &str| parse_workspace(text).map(|m| (m.source, m.target, m.read_only));
    let want = |name: &str, target: &str, read_only| Ok((path(name), target.to_owned(), read_only));
    assert_eq!(parsed(&path("c")), want("c", "", false));
    assert_eq!(parsed(&path("c:ro")), want("c", "", true));
    assert_eq!(parsed(&path("c:rw")), want("c", "", false));
    assert_eq!(parsed(&path("c:/code")), want("c", "/code", false));
    assert_eq!(parsed(&path("c:/code:ro")), want("c", "/code", true));
    assert_eq!(parsed(&path("a:ro")), want("a:ro", "", false));
    assert_eq!(parsed(&path("a:ro:ro")), want("a:ro", "", true));
    assert_eq!(parsed(&path("b:/x")), want("b:/x", "", false));
    assert_eq!(parsed(&path("b:/x:/y")), want("b:/x", "/y", false));
    // What does not exist is for the daemon to refuse.
    assert_eq!(parsed(&path("nowhere")), want("nowhere", "", false));
    assert_eq!(parsed(&path("no:where")), want("no:where", "", false));
    assert!(parsed(&path("c:code")).is_err());
    assert!(parsed("").is_err());
}

#[test]
fn a_mode_is_ro_or_rw_and_anything_else_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let there = dir.path().display().to_string();
    let tails =
        [":readonly", ":ro:z", ":z", ":bad", ":RO", ":ro,z", ":ro:ro", ":rw:ro:", ":", ":ro:bad", ":bad:ro"];
    for tail in tails {
        for text in [format!("{there}:/x{tail}"), format!("vol:/x{tail}"), format!("/no/where:/x{tail}")] {
            let error = parse_volume(&text).expect_err(&text);
            assert!(error.contains("ro or rw"), "{text}: {error}");
        }
        let error = parse_workspace(&format!("{there}:/x{tail}")).expect_err(tail);
        assert!(error.contains("ro or rw"), "{tail}: {error}");
        let error = parse_workspace(&format!("{there}{tail}"));
        assert!(error.as_ref().is_err_and(|e| e.contains("ro or rw")), "{tail}: {error:?}");
    }
    for (tail, read_only) in [("", false), (":ro", true), (":rw", false)] {
        let mount = parse_volume(&format!("{there}:/x{tail}")).expect(tail);
        assert_eq!((mount.target.as_str(), mount.read_only), ("/x", read_only));
    }
}

#[test]
fn a_relative_workspace_is_taken_from_the_current_directory() {
    let here = std::env::current_dir().expect("a current directory");
    let mount = parse_workspace("src:/code").expect("valid");
    assert_eq!(mount.source, here.join("src").display().to_string());
}

#[test]
fn a_volume_is_a_path_or_a_name() {
    let here = std::env::current_dir().expect("a current directory").display().to_string();
    let parsed = |text: &str| parse_volume(text).map(|m| (m.source, m.target, m.read_only));
    assert_eq!(parsed("cache:/cache"), Ok(("cache".to_owned(), "/cache".to_owned(), false)));
    assert_eq!(parsed("/a:/b:ro"), Ok(("/a".to_owned(), "/b".to_owned(), true)));
    assert_eq!(parsed(".:/b"), Ok((here.clone(), "/b".to_owned(), false)));
    assert_eq!(parsed("x/y:/b"), Ok((format!("{here}/x/y"), "/b".to_owned(), false)));
    for text in ["", "cache", "cache:", ":/b", "cache:b", "/a"] {
        assert!(parse_volume(text).is_err(), "{text}");
    }
}

#[test]
fn variables_come_from_files_then_from_the_command_line() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("env");
    std::fs::write(
        &file,
        "\u{feff}# comment\n\n  A=1\nB=a && b > c <d> \nSET\nUNSET\nQ=\"x\"\nE=\r\nOVER=1\n",
    )
    .expect("write");
    let pairs = ["OVER=2", "X==", "SET", "GONE"].map(str::to_owned);
    let env = environment_from(&[file], &pairs, &vars).expect("valid");
    let want = [
        ("A", "1"),
        ("B", "a && b > c <d> "),
        ("E", ""),
        ("OVER", "2"),
        ("Q", "\"x\""),
        ("SET", "from the shell"),
        ("X", "="),
    ];
    assert_eq!(env, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

#[test]
fn what_is_wrong_with_a_variable_is_said_without_its_value() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("env");
    for (text, line) in [("A=1\n=s3cret\n", 2), ("A B=s3cret\n", 1), ("A=s3cret\0\n", 1)] {
        std::fs::write(&file, text).expect("write");
        let error = environment_from(std::slice::from_ref(&file), &[], &vars).expect_err("wrong");
        assert!(error.contains(&format!("line {line}")) && !error.contains("s3cret"), "{error}");
    }
    std::fs::write(&file, b"A=\xff").expect("write");
    assert!(environment_from(&[file], &[], &vars).is_err());
    let error = environment_from(&[], &["=s3cret".to_owned()], &vars).expect_err("wrong");
    assert!(!error.contains("s3cret"), "{error}");
    assert!(environment_from(&[dir.path().join("nothing")], &[], &vars).is_err());
}

#[test]
fn pairs_and_cpus_are_checked() {
    assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
    assert!(parse_pair("a").is_err() && parse_pair("=b").is_err());
    assert_eq!(parse_cpus("0.5"), Ok(0.5));
    for text in ["0", "-1", "NaN", "inf", "two"] {
        assert!(parse_cpus(text).is_err(), "{text}");
    }
}
