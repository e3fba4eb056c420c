//! What lies in the home: whose it is, and what became of the table.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Check, Mend, counted};
use crate::paths::{Home, MAX_SOCKET_PATH_BYTES};

/// A copy of the table that is older than this says that none is made any more.
const OLD_COPY: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// Whether others can get at the table, its copies or the log.
pub(super) fn rights(home: &Home) -> Check {
    let open: Vec<(PathBuf, u32)> = private(home)
        .into_iter()
        .filter_map(|(path, wanted)| {
            let mode = fs::symlink_metadata(&path).ok().filter(|meta| !meta.is_symlink())?.mode();
            (mode & 0o077 != 0).then_some((path, wanted))
        })
        .collect();
    let Some((first, _)) = open.first() else {
        return Check::ok("rights", "table, copies, settings and logs are for this user alone");
    };
    let names: Vec<String> = open.iter().map(|(path, _)| path.display().to_string()).collect();
    let fix = format!("chmod go= {}", names.join(" "));
    let why = format!("open to others: {}{}", first.display(), and_more(open.len() - 1));
    Check::failed("rights", why, fix).mended_by(Mend::Modes(open))
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {} more", counted(count, "file", "files")) }
}

/// What must be for one user alone, and with which mode.
fn private(home: &Home) -> Vec<(PathBuf, u32)> {
    let mut all: Vec<(PathBuf, u32)> =
        [home.log_dir(), home.backups()].map(|dir| (dir, 0o700)).into_iter().collect();
    for dir in [home.root().to_owned(), home.log_dir(), home.backups()] {
        let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            path.is_file() && (name.starts_with("sessions") || name.starts_with("abxd.log"))
        };
        all.extend(files.filter(ours).map(|path| (path, 0o600)));
    }
    all
}

/// The socket: its rights, its length, and whether somebody listens.
pub(super) fn socket(home: &Home) -> Check {
    let socket = home.socket();
    let shown = socket.display();
    let length = socket.as_os_str().len();
    let Ok(meta) = fs::metadata(socket) else {
        return Check::ok("socket", format!("{shown} ({length} of {MAX_SOCKET_PATH_BYTES} bytes)"));
    };
    if meta.mode() & 0o077 != 0 {
        let why = format!("{shown} is open to others (mode {:o})", meta.mode() & 0o777);
        return Check::failed("socket", why, format!("chmod 600 {shown}"))
            .mended_by(Mend::Modes(vec![(socket.to_owned(), 0o600)]));
    }
    let refused =
        || UnixStream::connect(socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if meta.file_type().is_socket() && refused() {
        let why = format!("{shown} is there, and nobody listens: an abxd was killed");
        return Check::warning("socket", why, "abx daemon start").mended_by(Mend::Socket(socket.to_owned()));
    }
    Check::ok("socket", format!("{shown} ({length} of {MAX_SOCKET_PATH_BYTES} bytes)"))
}

/// The table's copies, and tables that were set aside.
pub(super) fn table(home: &Home) -> Vec<Check> {
    let mut checks = vec![copies(home)];
    let aside = names_in(home.root(), |name| {
        name.starts_with("sessions.db.damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm")
    });
    if let Some(newest) = aside.last() {
        let why = format!("{} set aside: {newest}", counted(aside.len(), "damaged table", "damaged tables"));
        let fix =
            format!("look through it, then: rm {}", home.root().join("sessions.db.damaged-*").display());
        checks.push(Check::warning("table", why, fix));
    }
    checks
}

fn copies(home: &Home) -> Check {
    let dir = home.backups();
    let copies = names_in(&dir, |name| name.starts_with("sessions-") && name.ends_with(".db"));
    let Some(newest) = copies.last() else {
        return Check::ok("backups", "no copy of the table yet: the first comes when there are sessions");
    };
    let made = fs::metadata(dir.join(newest)).and_then(|meta| meta.modified());
    let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok()).unwrap_or_default();
    let why = format!(
        "{} in {}, the newest {newest}",
        counted(copies.len(), "copy of the table", "copies of the table"),
        dir.display()
    );
    if age > OLD_COPY {
        Check::warning(
            "backups",
            format!("{why}, which is old"),
            "abx daemon logs, and look for: copy the session table",
        )
    } else {
        Check::ok("backups", why)
    }
}

/// Sorted names of a directory's entries.
fn names_in(dir: &Path, which: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| which(name)).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::super::Verdict;
    use super::*;

    fn home(dir: &Path) -> Home {
        Home::find(Some(dir), None).expect("a home")
    }

    #[test]
    fn an_open_table_fails_and_the_mend_closes_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        assert_eq!(rights(&home).verdict, Verdict::Ok);
        for name in ["sessions.db", "sessions.db.damaged-1"] {
            fs::write(home.root().join(name), "").expect("written");
            let open = fs::Permissions::from_mode(0o644);
            fs::set_permissions(home.root().join(name), open).expect("opened");
        }
        let check = rights(&home);
        assert_eq!(check.verdict, Verdict::Failed);
        assert!(check.why.ends_with(" and 1 file more"), "{}", check.why);
        check.mend.expect("it can be mended").apply_locally().expect("mended");
        assert_eq!(rights(&home).verdict, Verdict::Ok);
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_a_left_over() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        let listener = UnixListener::bind(home.socket()).expect("bound");
        fs::set_permissions(home.socket(), fs::Permissions::from_mode(0o600)).expect("closed");
        assert_eq!(socket(&home).verdict, Verdict::Ok);
        drop(listener);
        let check = socket(&home);
        assert_eq!(check.verdict, Verdict::Warning);
        check.mend.expect("it can be mended").apply_locally().expect("mended");
        assert!(!home.socket().exists());
    }

    #[test]
    fn a_table_that_was_set_aside_and_copies_that_grow_old_are_told() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        assert_eq!(table(&home).len(), 1);
        fs::write(home.root().join("sessions.db.damaged-20260201T000000Z"), "").expect("written");
        fs::create_dir(home.backups()).expect("made");
        let copy = home.backups().join("sessions-20260201-000000-v1.db");
        let file = fs::File::create(&copy).expect("made");
        let [copies, aside] = &table(&home)[..] else { panic!("two") };
        assert_eq!((copies.verdict, aside.verdict), (Verdict::Ok, Verdict::Warning));
        file.set_modified(SystemTime::now() - 2 * OLD_COPY).expect("made old");
        assert_eq!(table(&home)[0].verdict, Verdict::Warning);
    }
}
