//! Places that a running sandbox mounts from memory. An engine unpacks below such a mount, where no program sees it.

use super::Files;
use crate::daemon::failure::{Failure, quoted};

/// What every sandbox has from its kernel, whatever its engine says of mounts.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

impl Files {
    /// Refuses a directory in which what is written would not be seen.
    pub(super) fn refuse_hidden(&self, directory: &str, tmpfs: &[String]) -> Result<(), Failure> {
        let spec = &self.session.spec;
        let seen = spec.workspace.iter().chain(&spec.mounts).map(|mount| mount.target.as_str());
        let Some(place) = hidden(directory, tmpfs, seen) else { return Ok(()) };
        let name = self.session.name.as_str();
        let text = format!(
            "'{directory}' in session '{name}' cannot be written from outside: '{place}' is in the memory of a \
             running sandbox"
        );
        let hint = format!("tar c FILE | abx exec -i {} -- tar x -C {}", quoted(name), quoted(directory));
        Err(Failure::params(text).hint(hint).about(name))
    }
}

/// The mount from memory that a path is on, if the nearest mount is one.
fn hidden<'a>(path: &str, tmpfs: &'a [String], seen: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let memory = KERNEL.into_iter().chain(tmpfs.iter().map(String::as_str)).map(|at| (at, true));
    memory
        .chain(seen.map(|at| (at, false)))
        .filter(|(at, _)| path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        .max_by_key(|(at, _)| at.len())
        .and_then(|(at, memory)| memory.then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_says_whether_a_path_is_in_memory() {
        let tmpfs = ["/tmp".to_owned()];
        let hidden = |path| hidden(path, &tmpfs, ["/tmp/work", "/work"].into_iter());
        for (path, place) in [
            ("/dev/shm", Some("/dev")),
            ("/proc", Some("/proc")),
            ("/device", None),
            ("/tmp", Some("/tmp")),
            ("/tmp/a", Some("/tmp")),
            ("/tmp/work", None),
            ("/tmp/work/a", None),
            ("/work/tmp", None),
            ("/", None),
        ] {
            assert_eq!(hidden(path), place, "{path}");
        }
    }
}
