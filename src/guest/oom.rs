//! How often the kernel killed a process of this sandbox for want of memory.
//!
//! Both kinds of control groups count it, in different files. Where neither can be read the count stays 0.

use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";

/// The count, and what of it has been told.
#[derive(Debug)]
pub(super) struct OomCount {
    file: Option<PathBuf>,
    told: u64,
    /// Kills that no command that ended has answered for.
    unclaimed: u64,
}

impl OomCount {
    /// Counts from now on.
    pub(super) fn new() -> Self {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(find(Path::new(MOUNTED), &own))
    }

    fn of(file: Option<PathBuf>) -> Self {
        let mut count = Self { file, told: 0, unclaimed: 0 };
        count.told = count.read();
        count
    }

    /// Whether there is anything to read.
    pub(super) fn is_known(&self) -> bool {
        self.file.is_some()
    }

    /// How many were killed since the last call.
    pub(super) fn news(&mut self) -> u64 {
        let now = self.read();
        let kills = now.saturating_sub(self.told);
        self.told = self.told.max(now);
        self.unclaimed += kills;
        kills
    }

    /// How many were killed so far. A command remembers it from its start.
    pub(super) fn so_far(&self) -> u64 {
        self.told
    }

    /// Whether a command that was killed, and began when `then` had been killed, was killed by the kernel: each kill
    /// answers for one command.
    pub(super) fn claim(&mut self, then: u64) -> bool {
        let claimed = self.unclaimed > 0 && self.told > then;
        if claimed {
            self.unclaimed -= 1;
        }
        claimed
    }

    fn read(&self) -> u64 {
        let text = self.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        text.as_deref().and_then(kills).unwrap_or(0)
    }
}

/// `oom_kill 3` on a line of its own in both files.
fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// The own group's file. A sandbox mostly sees its own group as the root; where it does not, its path leads there.
fn find(mounted: &Path, own: &str) -> Option<PathBuf> {
    let path = |controller: &str| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|c| c == controller).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let kinds = [
        (mounted.to_owned(), path(""), "memory.events"),
        (mounted.join("memory"), path("memory"), "memory.oom_control"),
    ];
    let files = kinds.into_iter().flat_map(|(root, own, file)| {
        let own = own.filter(|path| !path.is_empty()).map(|path| root.join(path).join(file));
        own.into_iter().chain([root.join(file)])
    });
    files.into_iter().find(|file| std::fs::read_to_string(file).is_ok_and(|text| kills(&text).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_either_kind_of_group_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find(root.path(), "0::/\n"), None);
        let old = root.path().join("memory");
        std::fs::create_dir_all(old.join("docker/x")).unwrap();
        std::fs::write(old.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
            .unwrap();
        let own = "9:cpu,memory:/docker/x\n0::/\n";
        assert_eq!(find(root.path(), own), Some(old.join("memory.oom_control")));
        std::fs::write(old.join("docker/x/memory.oom_control"), "oom_kill 1\n").unwrap();
        assert_eq!(find(root.path(), own), Some(old.join("docker/x/memory.oom_control")));
        std::fs::write(root.path().join("memory.events"), "low 0\noom 1\noom_kill 1\n").unwrap();
        assert_eq!(find(root.path(), "0::/\n"), Some(root.path().join("memory.events")));
    }

    #[test]
    fn each_kill_answers_for_one_command_that_was_running_then() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("memory.events");
        std::fs::write(&file, "oom_kill 5\n").unwrap();
        let mut count = OomCount::of(Some(file.clone()));
        assert_eq!((count.news(), count.so_far()), (0, 5));
        let began = count.so_far();
        assert!(!count.claim(began), "nothing was killed");
        std::fs::write(&file, "oom_kill 6\n").unwrap();
        assert_eq!(count.news(), 1);
        let later = count.so_far();
        assert!(!count.claim(later), "it began after the kill");
        assert!(count.claim(began));
        assert!(!count.claim(began), "one kill, one command");
    }
}
