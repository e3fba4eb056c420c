//! Standard output that is closed or full.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use super::abx;
use super::daemon::Daemon;

#[test]
fn a_closed_pipe_is_no_error_text() {
    let daemon = Daemon::answering("[]");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = abx(daemon.home()).arg("ls").stdout(writer).stderr(Stdio::piped()).output().expect("output");
    assert_eq!((output.status.signal(), output.stderr.as_slice()), (Some(13), &b""[..]));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let daemon = Daemon::answering("[]");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("open");
    let output = abx(daemon.home()).arg("ls").stdout(full).stderr(Stdio::piped()).output().expect("output");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.starts_with("Error: failed to write to standard output\nCaused by: "), "{error}");
}

#[test]
fn nothing_is_started_and_nothing_made_where_that_is_not_wanted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = dir.path().join("home");
    let output = abx(&home).arg("ls").output().expect("output");
    assert_eq!(output.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Hint: abx daemon start"));
    let output = abx(&home).arg("--version").output().expect("output");
    assert_eq!(output.stdout, format!("abx {}\n", env!("CARGO_PKG_VERSION")).into_bytes());
    let output = abx(&home).arg("doctor").output().expect("output");
    let report = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(report.contains("FAILED   daemon"), "{report}");
    assert!(report.contains("settings that abxd would start with:\n  home = "), "{report}");
    assert!(report.contains("/home (environment ABX_HOME)\n"), "{report}");
    assert!(!home.exists());
}
