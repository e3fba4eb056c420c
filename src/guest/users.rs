//! Users and groups as the sandbox's own files name them. No library of the image is asked: there may be none.

use std::path::Path;

/// Where the two files are.
const ETC: &str = "/etc";

/// Longest of the two files that is read, in bytes.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// Who a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// The user's id.
    pub(super) uid: u32,
    /// The group's id.
    pub(super) gid: u32,
    /// Other groups.
    pub(super) groups: Vec<u32>,
    /// The name; the id as text when the files do not know it.
    pub(super) name: String,
    /// The home directory; `/` when the files do not know it.
    pub(super) home: String,
}

/// Looks up `name`, `uid`, `name:group` or `uid:gid`.
///
/// # Errors
/// A line that says which of the two is not there.
pub(super) fn look_up(spec: &str) -> Result<User, String> {
    look_up_in(Path::new(ETC), spec)
}

/// The user with this id, as far as the files know it.
pub(super) fn with_id(uid: u32) -> User {
    look_up(&uid.to_string()).unwrap_or_else(|_| unknown(uid))
}

fn look_up_in(etc: &Path, spec: &str) -> Result<User, String> {
    let (name, group) = match spec.split_once(':') {
        Some((name, group)) => (name, Some(group).filter(|group| !group.is_empty())),
        None => (spec, None),
    };
    let passwd = read(&etc.join("passwd"));
    let groups = read(&etc.join("group"));
    let mut user =
        find_user(&passwd, name).ok_or_else(|| format!("no user named {name:?} in the sandbox"))?;
    match group {
        Some(group) => {
            let found = find_group(&groups, group);
            user.gid = found.ok_or_else(|| format!("no group named {group:?} in the sandbox"))?;
        }
        None => user.groups = groups_of(&groups, &user.name),
    }
    if !user.groups.contains(&user.gid) {
        user.groups.insert(0, user.gid);
    }
    Ok(user)
}

/// A file that is missing, or too long to be one of these, names nobody.
fn read(path: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(MAX_FILE_BYTES as u64).read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A name comes first: some systems have names of digits. Without one, an id need not be in the file.
fn find_user(passwd: &str, name: &str) -> Option<User> {
    let lines = || passwd.lines().filter_map(parse_user);
    if let Some(user) = lines().find(|user| user.name == name) {
        return Some(user);
    }
    let uid = id(name)?;
    Some(lines().find(|user| user.uid == uid).unwrap_or_else(|| unknown(uid)))
}

fn unknown(uid: u32) -> User {
    User { uid, gid: 0, groups: Vec::new(), name: uid.to_string(), home: "/".to_owned() }
}

/// `name:password:uid:gid:comment:home:shell`.
fn parse_user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let uid = id(fields.nth(1)?)?;
    let gid = id(fields.next()?)?;
    let home = fields.nth(1).filter(|home| !home.is_empty()).unwrap_or("/");
    Some(User { uid, gid, groups: Vec::new(), name: name.to_owned(), home: home.to_owned() })
}

/// `name:password:gid:member,member`.
fn parse_group(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let gid = id(fields.nth(1)?)?;
    Some((name, gid, fields.next().unwrap_or_default()))
}

fn find_group(groups: &str, name: &str) -> Option<u32> {
    let named = groups.lines().filter_map(parse_group).find(|(group, ..)| *group == name);
    named.map(|(_, gid, _)| gid).or_else(|| id(name))
}

fn groups_of(groups: &str, name: &str) -> Vec<u32> {
    let lines = groups.lines().filter_map(parse_group);
    lines
        .filter(|(.., members)| members.split(',').any(|m| m.trim() == name))
        .map(|(_, gid, _)| gid)
        .collect()
}

/// The highest id means "leave it as it is" to the system, so it is none.
fn id(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?.filter(|&id| id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etc() -> tempfile::TempDir {
        let etc = tempfile::tempdir().unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken\nann:x:1000:1001::/home/ann:/bin/sh\n\
                      1234:x:7:7::/srv:/bin/sh\nnohome:x:8:8\n";
        std::fs::write(etc.path().join("passwd"), passwd).unwrap();
        let group = "root:x:0:\nann:x:1001:\nwheel:x:10:root,ann\nbroken\ndocker:x:99:bob, ann\n";
        std::fs::write(etc.path().join("group"), group).unwrap();
        etc
    }

    #[test]
    fn names_and_ids_are_found_with_their_groups() {
        let etc = etc();
        let ann = look_up_in(etc.path(), "ann").unwrap();
        assert_eq!((ann.uid, ann.gid, ann.home.as_str()), (1000, 1001, "/home/ann"));
        assert_eq!(ann.groups, [1001, 10, 99]);
        assert_eq!(look_up_in(etc.path(), "1000").unwrap(), ann);
    }

    #[test]
    fn a_group_that_is_named_stands_alone() {
        let user = look_up_in(etc().path(), "ann:docker").unwrap();
        assert_eq!((user.gid, user.groups), (99, vec![99]));
        let user = look_up_in(etc().path(), "5:6").unwrap();
        assert_eq!((user.uid, user.gid, user.name.as_str(), user.home.as_str()), (5, 6, "5", "/"));
    }

    #[test]
    fn a_name_of_digits_comes_before_the_id() {
        assert_eq!(look_up_in(etc().path(), "1234").unwrap().uid, 7);
        assert_eq!(look_up_in(etc().path(), "4321").unwrap().uid, 4321);
    }

    #[test]
    fn nobody_is_found_where_there_is_nobody() {
        let etc = etc();
        for spec in ["bob", "", "-1", "4294967295", "99999999999", "nohome2", "+5"] {
            assert!(look_up_in(etc.path(), spec).is_err(), "{spec:?}");
        }
        assert_eq!(look_up_in(etc.path(), "ann:x").unwrap_err(), "no group named \"x\" in the sandbox");
    }

    #[test]
    fn an_image_without_the_files_knows_ids_alone() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(look_up_in(empty.path(), "0").unwrap().home, "/");
        assert!(look_up_in(empty.path(), "root").is_err());
    }
}
