//! The files of service managers, read by what reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A file of the package, with the daemon's path in its place.
fn filled_in(file: &str) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("there");
    text.replace("@ABXD@", env!("CARGO_BIN_EXE_abxd")).replace("@SOCKET@", "/home/o &amp; p/.abx/daemon.sock")
}

#[test]
fn systemd_finds_nothing_wrong_in_the_units() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let units = ["abxd.service", "abxd.socket"].map(|name| {
        let path = dir.path().join(name);
        fs::write(&path, filled_in(&format!("systemd/{name}"))).expect("write");
        path
    });
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "verify"]).args(&units);
    verify.env("XDG_RUNTIME_DIR", dir.path()).env("HOME", dir.path());
    let output = verify.output().expect("systemd-analyze runs");
    // What it does not know it only warns of.
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn the_agent_for_launchd_is_a_property_list_that_starts_the_daemon_on_its_socket() {
    let read = "import plistlib, sys
agent = plistlib.loads(sys.stdin.buffer.read())
print(agent['Label'], agent['ProgramArguments'], agent['RunAtLoad'], agent['KeepAlive'], agent['Sockets'])";
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("agent.plist");
    fs::write(&path, filled_in("launchd/dev.abx.abxd.plist")).expect("write");
    let mut python = Command::new("python3");
    python.args(["-c", read]).stdin(fs::File::open(&path).expect("open"));
    let output = python.output().expect("python3 runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let said = format!(
        "dev.abx.abxd ['{}'] True {{'SuccessfulExit': False}} {{'daemon': {{'SockFamily': 'Unix', \
         'SockPathName': '/home/o & p/.abx/daemon.sock', 'SockPathMode': {}}}}}\n",
        env!("CARGO_BIN_EXE_abxd"),
        0o600
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), said);
}
