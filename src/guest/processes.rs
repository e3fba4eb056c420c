//! Which processes belong to a command, and signals to all of them.
//!
//! A command's processes are those of its session, those that a chain of living parents leads to it, and those whose
//! environment carries its mark, whatever session, group or user they moved to.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, setfsgid, setfsuid};

use super::wire::EXEC_MARK;

/// Looks again this often for processes that were started meanwhile.
const PASSES: usize = 8;

/// How long is waited before another look at a process that is just becoming another program.
const BECOMES: Duration = Duration::from_millis(5);

/// Longest environment that is searched for the mark, in bytes.
const MAX_ENVIRONMENT_BYTES: u64 = 4 * 1024 * 1024;

/// A command, as far as its processes are looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family<'a> {
    /// Its mark.
    pub(super) id: &'a str,
    /// Its first process, which began its session; 0 when it never ran.
    pub(super) leader: u32,
    /// Whether that one was reaped: its number may be another's by now.
    pub(super) reaped: bool,
}

/// Sends `signal` to all processes of a command, until a look finds none that has not got it, and none of which it cannot be
/// told whether it is one. Whether there was any.
pub(super) fn signal_all(family: Family<'_>, signal: Signal) -> bool {
    let leader = family.leader;
    let mut done = HashSet::new();
    for _ in 0..PASSES {
        let (found, all_known) = of_command(family);
        let mut new: Vec<u32> = found.into_iter().filter(|pid| done.insert(*pid)).collect();
        // The leader first: it must not see its children end and go on, or end in a way of its own.
        new.sort_unstable_by_key(|&pid| (pid != leader, pid));
        if new.is_empty() && all_known {
            break;
        }
        if new.is_empty() {
            sleep(BECOMES);
        }
        for pid in new {
            send(pid, signal);
        }
    }
    !done.is_empty()
}

/// Sends `signal` to every process of a session: on a terminal, all that a shell started there.
pub(super) fn signal_session(leader: u32, signal: Signal) {
    for process in all().into_iter().filter(|process| process.session == leader) {
        send(process.pid, signal);
    }
}

/// Sends `signal` to every process that descends from this one. For PID 1 those are all.
pub(super) fn signal_everything(signal: Signal) {
    if std::process::id() == 1 {
        // One call, which no process can be started beside. It spares PID 1.
        let _ = kill(Pid::from_raw(-1), signal);
        let _ = kill(Pid::from_raw(-1), Signal::SIGCONT);
        return;
    }
    let own = std::process::id();
    let mut pids: Vec<u32> = with_children(HashSet::from([own]), &all()).into_iter().collect();
    // The older first: parents must not see their children end before they are asked themselves.
    pids.sort_unstable();
    pids.into_iter().filter(|&pid| pid != own).for_each(|pid| send(pid, signal));
}

/// Sends `signal` to one process. One that is stopped is woken to take what ends it.
pub(super) fn send(pid: u32, signal: Signal) {
    // One that has ended meanwhile needs no signal.
    let _ = kill(raw(pid), signal);
    if signal == Signal::SIGTERM || signal == Signal::SIGHUP {
        let _ = kill(raw(pid), Signal::SIGCONT);
    }
}

/// Sends `signal` to a process group.
pub(super) fn send_group(group: u32, signal: Signal) {
    let _ = nix::sys::signal::killpg(raw(group), signal);
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

struct Process {
    pid: u32,
    parent: u32,
    session: u32,
}

/// What belongs to a command, and whether that is known of all.
fn of_command(Family { id, leader, reaped }: Family<'_>) -> (Vec<u32>, bool) {
    let mut processes = all();
    // What does not descend from here was not started here, whatever it carries.
    let ours = with_children(HashSet::from([std::process::id()]), &processes);
    processes.retain(|process| ours.contains(&process.pid));
    let mut found = HashSet::new();
    let mark = format!("{EXEC_MARK}={id}");
    // As long as anything is left of its session nothing else gets its number.
    let taken = leader == 0 || reaped && processes.iter().any(|process| process.pid == leader);
    for process in &processes {
        let its = !taken && (process.session == leader || process.pid == leader);
        if its || carries(process.pid, mark.as_bytes()) {
            found.insert(process.pid);
        }
    }
    let found = with_children(found, &processes);
    let known = |process: &Process| found.contains(&process.pid) || !is_becoming(process.pid);
    let all_known = processes.iter().all(known);
    (found.into_iter().collect(), all_known)
}

/// Whether a process is between two programs: in execve(2) it shows neither arguments nor environment, by which it could be
/// known.
fn is_becoming(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|bytes| bytes.is_empty())
}

/// Adds children, at any depth: a program may wipe its environment and begin a session.
fn with_children(mut found: HashSet<u32>, processes: &[Process]) -> HashSet<u32> {
    loop {
        let before = found.len();
        for process in processes {
            if found.contains(&process.parent) {
                found.insert(process.pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// All processes that are still alive, except this one.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| pid != own).filter_map(process).collect()
}

fn process(pid: u32) -> Option<Process> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // The name, in brackets, may have anything in it, brackets too.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(Process { pid, parent, session })
}

/// The id of the command that a process is of, by its mark.
pub(super) fn command_of(pid: u32) -> Option<String> {
    let environment = environment(pid)?;
    let mut variables = environment.split(|&b| b == 0);
    let id =
        variables.find_map(|variable| variable.strip_prefix(EXEC_MARK.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(id.to_vec()).ok()
}

fn carries(pid: u32, mark: &[u8]) -> bool {
    environment(pid).is_some_and(|bytes| bytes.split(|&b| b == 0).any(|variable| variable == mark))
}

/// Without the capability to trace, which engines take away, only a process's own user may read its environment, so it
/// is read as that user.
fn environment(pid: u32) -> Option<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    let path = format!("/proc/{pid}/environ");
    let owner = fs::metadata(&path).ok()?;
    let gid = group_of(pid).unwrap_or(owner.gid());
    let before = (setfsgid(Gid::from_raw(gid)), setfsuid(Uid::from_raw(owner.uid())));
    let mut bytes = Vec::new();
    let read =
        fs::File::open(&path).and_then(|file| file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut bytes));
    setfsuid(before.1);
    setfsgid(before.0);
    read.ok().map(|_| bytes)
}

fn group_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Gid:"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};

    use super::*;

    fn family(id: &str, leader: u32) -> Family<'_> {
        Family { id, leader, reaped: false }
    }

    #[test]
    fn a_number_that_went_to_another_process_leads_to_nothing() {
        let mut other = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        assert_eq!(of_command(family("ended", other.id())).0, vec![other.id()]);
        let ended = Family { reaped: true, ..family("ended", other.id()) };
        assert_eq!(of_command(ended).0, Vec::<u32>::new());
        assert!(!signal_all(ended, Signal::SIGKILL));
        assert!(signal_all(family("ended", other.id()), Signal::SIGKILL));
        assert_eq!(other.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_process_is_found_by_its_mark_its_session_and_its_parents() {
        let mut marked = Command::new("sleep").arg("60").env(EXEC_MARK, "test-mark").spawn().unwrap();
        // A program that has just been started shows its environment a moment later.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !of_command(family("test-mark", u32::MAX - 1)).0.contains(&marked.id()) {
            assert!(std::time::Instant::now() < limit, "it is not found by its mark");
            std::thread::yield_now();
        }
        assert!(!of_command(family("test-mar", u32::MAX - 1)).0.contains(&marked.id()));
        assert_eq!(command_of(marked.id()).as_deref(), Some("test-mark"));
        let mut shell = Command::new("sh")
            .args(["-c", "env -i sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line)
            .unwrap();
        let sleeper: u32 = line.trim().parse().unwrap();
        assert!(of_command(family("other", shell.id())).0.contains(&sleeper));
        signal_all(family("other", shell.id()), Signal::SIGKILL);
        signal_all(family("test-mark", u32::MAX - 1), Signal::SIGTERM);
        assert_eq!(shell.wait().unwrap().signal(), Some(9));
        assert_eq!(marked.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn a_process_without_a_leader_left_has_no_one_elses_children() {
        assert_eq!(of_command(family("no-such-command", u32::MAX - 1)).0, Vec::<u32>::new());
    }
}
