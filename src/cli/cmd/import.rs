//! `abx import`: reads an exported table, or the older tools' session files, and hands their rows to the daemon. Changes no
//! file.

mod table;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::fcntl::OFlag;
use serde::Serialize;

use crate::cli::args::ImportArgs;
use crate::cli::context::{Context, operation_id, understand};
use crate::cli::failure::{FAILED, Failure};
use crate::cli::legacy::{self, Origin};
use crate::cli::output::clean;
use crate::client::Client;
use crate::paths;
use crate::proto::methods::SessionImport;
use crate::proto::sessions::{ImportOutcome, ImportParams, ImportRow};

/// Largest session file that is read, in bytes: they have about a thousand.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Bytes of rows sent in one request; a message may carry twice as much.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What became of one file.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    name: Option<String>,
    outcome: String,
    status: Option<String>,
    why: Option<String>,
    notes: Vec<String>,
}

/// Imports, and exits with 1 if a file was not imported.
pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<u8, Failure> {
    if let Some(path) = args.path.as_deref().filter(|path| table::is_document(path)) {
        return table::run(context, path, args.rename);
    }
    let mut reports = Vec::new();
    let mut rows = Vec::new();
    let Found { files, looked_in } = files(args)?;
    for (path, origin) in files {
        let (report, row) = read(&path, origin);
        if let Some(row) = row {
            rows.push((reports.len(), row));
        }
        reports.push(report);
    }
    if !rows.is_empty() {
        let mut client = context.connect()?;
        for batch in batches(rows) {
            send(context, &mut client, batch, &mut reports)?;
        }
    }
    if reports.is_empty() {
        context.output.note(&format!("looked for *.json in {}", looked_in.join(", ")));
    }
    Ok(tell(context, &reports))
}

/// The name of the directory in which both tools kept their sessions.
const SESSIONS_DIR: &str = "sessions";

/// Files that may be sessions, each with the tool that wrote it where that is known.
#[derive(Debug, Default)]
struct Found {
    files: Vec<(PathBuf, Option<Origin>)>,
    looked_in: Vec<String>,
}

impl Found {
    /// Adds those of a directory, which need not be there.
    fn look_in(&mut self, dir: &Path, origin: Option<Origin>) -> Result<(), Failure> {
        self.looked_in.push(clean(&dir.display().to_string()));
        match listing(dir, |path| path.extension().is_some_and(|extension| extension == "json")) {
            Ok(paths) => self.files.extend(paths.into_iter().map(|path| (path, origin))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(unreadable(dir, &error)),
        }
        Ok(())
    }
}

fn files(args: &ImportArgs) -> Result<Found, Failure> {
    let wanted = Origin::from_name(&args.from);
    let mut found = Found::default();
    if let Some(dir) = &args.path {
        let below = listing(dir, |path| path.is_dir() && !path.is_symlink())
            .map_err(|error| unreadable(dir, &error))?;
        found.look_in(dir, wanted)?;
        if found.files.is_empty() {
            look_below(&below, wanted, &mut found)?;
        }
        return Ok(found);
    }
    for store in paths::legacy_stores() {
        let origin = Origin::from_name(store.origin);
        if wanted.is_none() || wanted == origin {
            found.look_in(&store.dir, origin)?;
        }
    }
    Ok(found)
}

/// Looks in the directories of one that has no session of its own: it may hold those of both tools.
fn look_below(dirs: &[PathBuf], wanted: Option<Origin>, found: &mut Found) -> Result<(), Failure> {
    for dir in dirs {
        let named = dir.file_name().and_then(|name| name.to_str()).and_then(Origin::from_name);
        if wanted.is_some() && named.is_some() && wanted != named {
            continue;
        }
        let origin = wanted.or(named);
        found.look_in(dir, origin)?;
        found.look_in(&dir.join(SESSIONS_DIR), origin)?;
    }
    Ok(())
}

fn unreadable(dir: &Path, error: &io::Error) -> Failure {
    Failure::local(format!("failed to read the directory {}", dir.display()), error)
}

/// These entries of a directory, sorted, so that the same directory always gives the same order.
fn listing(dir: &Path, which: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if which(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path, origin: Option<Origin>) -> (Report, Option<ImportRow>) {
    let mut report = Report {
        file: path.display().to_string(),
        name: None,
        outcome: "not imported".to_owned(),
        status: None,
        why: None,
        notes: Vec::new(),
    };
    let (bytes, written) = match contents(path) {
        Ok(read) => read,
        Err(why) => {
            report.why = Some(why);
            return (report, None);
        }
    };
    match legacy::read(&bytes, origin, written) {
        Ok(legacy) => {
            report.name = Some(legacy.row.row.name.clone());
            report.notes = legacy.notes;
            (report, Some(legacy.row))
        }
        Err(why) => {
            report.why = Some(why);
            (report, None)
        }
    }
}

/// The bytes of a regular file, and when they were written. Neither follows a link nor waits for a pipe's writer.
fn contents(path: &Path) -> Result<(Vec<u8>, Timestamp), String> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file: File =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
            match error.raw_os_error() {
                Some(code) if code == nix::errno::Errno::ELOOP as i32 => "it is a link".to_owned(),
                _ => error.to_string(),
            }
        })?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if meta.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !meta.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it is larger than {MAX_FILE_BYTES} bytes"));
    }
    let written = meta.modified().ok().and_then(|time| Timestamp::try_from(time).ok()).unwrap_or_default();
    Ok((bytes, written))
}

fn batches(rows: Vec<(usize, ImportRow)>) -> Vec<Vec<(usize, ImportRow)>> {
    let mut batches: Vec<Vec<(usize, ImportRow)>> = Vec::new();
    let mut room = 0;
    for (at, row) in rows {
        let size = serde_json::to_vec(&row).map_or(0, |bytes| bytes.len());
        match batches.last_mut() {
            Some(batch) if size <= room => {
                batch.push((at, row));
                room -= size;
            }
            _ => {
                batches.push(vec![(at, row)]);
                room = BATCH_BYTES.saturating_sub(size);
            }
        }
    }
    batches
}

fn send(
    context: &Context,
    client: &mut Client,
    batch: Vec<(usize, ImportRow)>,
    reports: &mut [Report],
) -> Result<(), Failure> {
    let (places, rows): (Vec<usize>, Vec<ImportRow>) = batch.into_iter().unzip();
    let raw = context.call_on::<SessionImport>(client, &ImportParams { rows, op: operation_id() })?;
    let outcomes = understand::<SessionImport>(&raw)?;
    if outcomes.len() != places.len() {
        return Err(
            Failure::daemon("abxd did not answer for every file", Vec::new()).with_hint("abx daemon restart")
        );
    }
    for (place, ImportOutcome { outcome, status, why, .. }) in places.into_iter().zip(outcomes) {
        let report = &mut reports[place];
        report.outcome = if outcome == "refused" { "not imported".to_owned() } else { outcome };
        report.status = status.map(|s| s.as_str().to_owned());
        report.why = why;
    }
    Ok(())
}

fn tell(context: &Context, reports: &[Report]) -> u8 {
    let count = |outcome: &str| reports.iter().filter(|r| r.outcome == outcome).count();
    let output = &context.output;
    for report in reports {
        let file = clean(&report.file);
        for note in &report.notes {
            output.note(&format!("{file}: note: {}", clean(note)));
        }
        output.note(&line(report));
    }
    let done = ["imported", "adopted", "unchanged"].map(count);
    let exit = if done.iter().sum::<usize>() == reports.len() { 0 } else { FAILED };
    if output.json {
        output.data(&serde_json::to_string(reports).unwrap_or_default());
    } else if output.quiet {
        let names: Vec<String> = reports
            .iter()
            .filter(|r| matches!(r.outcome.as_str(), "imported" | "adopted"))
            .filter_map(|r| r.name.as_deref().map(clean))
            .collect();
        output.out(&names.iter().map(|n| format!("{n}\n")).collect::<String>());
    } else if reports.is_empty() {
        output.data("No session files found.");
    } else {
        let [imported, adopted, unchanged] = done;
        let counts = format!(
            "{imported} imported, {adopted} adopted, {unchanged} unchanged, {} in conflict, {} not imported.",
            count("conflict"),
            count("not imported")
        );
        let nothing = if imported + adopted == 0 { " Nothing changed." } else { "" };
        output.data(&format!("{counts}{nothing}"));
    }
    exit
}

fn line(report: &Report) -> String {
    let file = clean(&report.file);
    let name = report.name.as_deref().map(|n| format!(" '{}'", clean(n))).unwrap_or_default();
    let why = report.why.as_deref().map(|w| format!(": {}", clean(w))).unwrap_or_default();
    let status = report.status.as_deref().map(|s| format!(" ({})", clean(s))).unwrap_or_default();
    if report.outcome == "not imported" {
        return format!("{file}: not imported{why}");
    }
    format!("{file}: {}{name}{status}{why}", clean(&report.outcome))
}

#[cfg(test)]
mod tests;
