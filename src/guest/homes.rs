//! Home directories of users whom the sandbox's files do not know.

use std::borrow::Cow;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, chownat, mkdirat};

use super::users::User;

/// Where they are made.
const HOMES: &str = "/home";

/// Where such a user can write when no home can be made, as on a root that is read-only.
const SCRATCH: &str = "/tmp";

/// The user's home. One whom the files do not know would have `/`, where only root can write: such a user gets a
/// directory of its own, which stays with the sandbox's files.
pub(super) fn of(user: &User) -> Cow<'_, str> {
    if user.uid == 0 || user.home != "/" {
        return Cow::Borrowed(&user.home);
    }
    make(Path::new(HOMES), user).map_or(Cow::Borrowed(SCRATCH), Cow::Owned)
}

fn make(homes: &Path, user: &User) -> Option<String> {
    // It is there, or is made here, or cannot be: the next step tells.
    let _ = mkdirat(CWD, homes, Mode::from_raw_mode(0o755));
    let home = homes.join(user.uid.to_string());
    if mkdirat(CWD, &home, Mode::from_raw_mode(0o700)).is_ok() {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        chownat(CWD, &home, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    }
    let found = std::fs::symlink_metadata(&home).ok()?;
    let theirs = found.is_dir() && std::os::unix::fs::MetadataExt::uid(&found) == user.uid;
    theirs.then(|| home.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, home: &str) -> User {
        User { uid, gid: uid, groups: vec![uid], name: uid.to_string(), home: home.to_owned() }
    }

    #[test]
    fn a_known_home_and_that_of_root_stay_as_they_are() {
        assert_eq!(of(&user(1, "/srv")), "/srv");
        assert_eq!(of(&user(0, "/")), "/");
    }

    #[test]
    fn an_unknown_user_gets_a_directory_of_its_own_and_finds_it_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let homes = dir.path().join("home");
        let me = user(rustix::process::geteuid().as_raw(), "/");
        let first = make(&homes, &me).expect("made");
        assert_eq!(first, homes.join(me.uid.to_string()).to_string_lossy());
        assert_eq!(make(&homes, &me).as_deref(), Some(&*first));
        std::fs::remove_dir(&first).expect("removed");
        std::os::unix::fs::symlink("/etc", &first).expect("a link");
        assert_eq!(make(&homes, &me), None, "what somebody else put there is not used");
    }
}
