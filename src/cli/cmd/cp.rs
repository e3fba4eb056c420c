//! `abx cp`: files and directories in and out of sandboxes, and from one to another, as `docker cp` does it.
//!
//! The daemon says what is at the sandbox's end; what the files are called at the other one is decided here, before
//! anything is written.

mod across;
mod beneath;
mod entry;
mod pack;
mod pass;
mod place;
mod unpack;
mod watch;
mod wire;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use self::across::across;
use self::entry::Names;
use self::pack::{Packer, What};
use self::place::{Destination, Place, Source, fit, says_contents, says_directory};
use self::unpack::Unpacker;
use self::watch::Watch;
use self::wire::{Cause, Download, Upload};
use crate::cli::args::CpArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{clean, raw_stdout};
use crate::config::size;
use crate::proto::copy::{CopyPlace, Direction, Owner};
use crate::proto::files::FileKind;

/// Links that are followed on the way to a destination, as Linux has it.
const MAX_LINKS: usize = 40;

/// Copies from one place to the other.
pub(crate) fn run(context: &Context, args: &CpArgs) -> Result<u8, Failure> {
    let (from, to) = (Place::parse(&args.source)?, Place::parse(&args.destination)?);
    let mut watch = Watch::start(&context.output);
    let copied = match (&from, &to) {
        (Place::Sandbox { session, path }, Place::Local(local)) => {
            out_to_files(context, (session, path), local, args, &mut watch)
        }
        (Place::Sandbox { session, path }, Place::Stream) => {
            out_to_stream(context, (session, path), args, &mut watch)
        }
        (Place::Local(local), Place::Sandbox { session, path }) => {
            in_from_files(context, local, (session, path), args, &mut watch)
        }
        (Place::Stream, Place::Sandbox { session, path }) => {
            in_from_stream(context, (session, path), args, &mut watch)
        }
        (Place::Sandbox { session, path }, Place::Sandbox { session: other, path: target }) => {
            across(context, (session, path), (other, target), args, &mut watch)
        }
        (Place::Local(_) | Place::Stream, Place::Local(_) | Place::Stream) => {
            let text = "neither SRC nor DST is in a session";
            return Err(Failure::usage(text).with_hint("abx cp NAME:/path/in/sandbox ./here"));
        }
    };
    watch.finish(copied.is_ok());
    copied?;
    if !matches!(to, Place::Stream) {
        tell(context, &from, &to, &watch);
    }
    Ok(0)
}

fn tell(context: &Context, from: &Place, to: &Place, watch: &Watch<'_>) {
    if context.output.json {
        let document = serde_json::json!({
            "source": from.shown(),
            "destination": to.shown(),
            "entries": watch.entries,
            "size_bytes": watch.bytes,
            "skipped": watch.skipped,
        });
        context.output.data(&document.to_string());
    } else if !context.output.quiet {
        let (count, to) = (watch.entries, clean(&to.shown()));
        let files = if count == 1 { "file" } else { "files" };
        context.output.note(&format!("Copied {count} {files} ({}) to {to}", size(watch.bytes)));
    }
}

fn out_to_files(
    context: &Context,
    (session, path): (&String, &String),
    local: &Path,
    args: &CpArgs,
    watch: &mut Watch<'_>,
) -> Result<(), Failure> {
    let (stream, place) = wire::open(context, session, path, Direction::Out, args)?;
    if place.kind == Some(FileKind::Other) {
        let text = format!("'{}' is a device or a pipe, and those are not copied", clean(&place.path));
        return Err(Failure::refused(text));
    }
    let source = out_source(&place);
    let (root, destination) = local_destination(local)?;
    let top = fit(&source, destination, &clean(&local.display().to_string()))?;
    watch.expect(place.size_bytes);
    let names = Names { strip: source.name.is_some(), top };
    let cause = Cause::default();
    let mut download = Download::new(stream, cause.clone());
    let unpacked = Unpacker::new(root, names, watch).unpack(&mut download);
    let what = format!("cannot copy to '{}'", clean(&local.display().to_string()));
    explain(unpacked.and_then(|()| download.finish()), &cause, &what)
}

fn out_to_stream(
    context: &Context,
    (session, path): (&String, &String),
    args: &CpArgs,
    watch: &mut Watch<'_>,
) -> Result<(), Failure> {
    if context.output.json {
        return Err(Failure::usage("a tar stream is no document").with_hint("leave --json out"));
    }
    if io::stdout().is_terminal() {
        let text = "standard output is a terminal, and a tar stream is not for one";
        return Err(Failure::refused(text).with_hint("abx cp NAME:PATH - | tar t"));
    }
    let (stream, _) = wire::open(context, session, path, Direction::Out, args)?;
    let cause = Cause::default();
    let mut download = Download::new(stream, cause.clone());
    let written = raw_stdout().and_then(|mut out| watch.transfer(&mut download, &mut out));
    if let Err(error) = &written
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        crate::cli::output::end_by_broken_pipe();
    }
    explain(written.map(|_| ()), &cause, "cannot write to standard output")
}

fn in_from_files(
    context: &Context,
    local: &Path,
    (session, path): (&String, &String),
    args: &CpArgs,
    watch: &mut Watch<'_>,
) -> Result<(), Failure> {
    let text = local.as_os_str().as_bytes();
    let shown = clean(&local.display().to_string());
    let what = What::open(local, args.follow_link || says_directory(text))
        .map_err(|error| Failure::local(format!("cannot read '{shown}'"), &error))?;
    if says_directory(text) && !what.is_directory() {
        return Err(Failure::refused(format!("'{shown}' is not a directory")));
    }
    let name = if says_contents(text) { None } else { own_name(local) };
    let source = Source { name, directory: what.is_directory() };
    let (stream, place) = wire::open(context, session, path, Direction::In, args)?;
    let top = fit(&source, in_destination(&place, path), &clean(&place.path))?;
    watch.expect(what.size_bytes());
    watch.goes_to(session, &place);
    let cause = Cause::default();
    let packer = Packer::new(Upload::new(stream, cause.clone()), &place.prefix, owner(&place, args), watch);
    let packed = packer.pack(what, top).and_then(Upload::finish);
    explain(packed, &cause, &format!("cannot copy '{shown}'"))
}

fn in_from_stream(
    context: &Context,
    (session, path): (&String, &String),
    args: &CpArgs,
    watch: &mut Watch<'_>,
) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        let text = "standard input is a terminal, and a tar stream does not come from one";
        return Err(Failure::refused(text).with_hint("tar c . | abx cp - NAME:PATH"));
    }
    let (stream, place) = wire::open(context, session, path, Direction::In, args)?;
    if place.name.is_some() {
        let text = format!("a tar stream is unpacked in a directory, which '{}' is not", clean(&place.path));
        return Err(Failure::refused(text));
    }
    let cause = Cause::default();
    let names = Names { strip: false, top: None };
    watch.goes_to(session, &place);
    let mut stdin = io::stdin().lock();
    let to = Upload::new(stream, cause.clone());
    let passed = pass::pass(&mut stdin, to, (&names, &place.prefix), owner(&place, args), watch);
    // Who writes the stream may still be at its padding.
    let passed = passed.and_then(|to| io::copy(&mut stdin, &mut io::sink()).map(|_| to));
    explain(passed.and_then(Upload::finish), &cause, "cannot read a tar stream from standard input")
}

/// Tells what the stream itself said where it ended the copy, else what this machine did.
fn explain(done: io::Result<()>, cause: &Cause, what: &str) -> Result<(), Failure> {
    match (done, cause.take()) {
        (Ok(()), None) => Ok(()),
        (_, Some(failure)) => Err(failure),
        (Err(error), None) => Err(Failure::local(what, &error)),
    }
}

fn out_source(place: &CopyPlace) -> Source {
    Source {
        name: place.name.clone().map(OsString::from),
        directory: place.kind == Some(FileKind::Directory),
    }
}

fn in_destination(place: &CopyPlace, path: &str) -> Destination {
    match &place.name {
        None => Destination::Into,
        Some(name) => Destination::Named {
            name: name.into(),
            exists: place.kind.is_some(),
            directory: says_directory(path.as_bytes()),
        },
    }
}

/// To whom files that go in will belong: the user that commands run as, unless they are to keep what they have.
fn owner(place: &CopyPlace, args: &CpArgs) -> Option<Owner> {
    place.owner.filter(|_| !args.archive)
}

/// The name of a directory or file, also where its path does not end in it.
fn own_name(path: &Path) -> Option<OsString> {
    match path.file_name() {
        Some(name) => Some(name.to_owned()),
        None => fs::canonicalize(path).ok()?.file_name().map(OsString::from),
    }
}

/// Opens the directory that files come into, and says under which name.
fn local_destination(path: &Path) -> Result<(OwnedFd, Destination), Failure> {
    let shown = clean(&path.display().to_string());
    let directory = says_directory(path.as_os_str().as_bytes());
    let failed = |error: io::Error| Failure::local(format!("cannot copy to '{shown}'"), &error);
    let mut end = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(seen) = fs::symlink_metadata(&end) else { break };
        if !seen.is_symlink() {
            break;
        }
        let target = fs::read_link(&end).map_err(failed)?;
        end = end.parent().map_or_else(|| target.clone(), |above| above.join(&target));
    }
    let exists = match fs::metadata(&end) {
        Ok(seen) if seen.is_dir() => {
            return Ok((beneath::open_root(&end).map_err(failed)?, Destination::Into));
        }
        Ok(seen) if !seen.is_file() => {
            return Err(Failure::refused(format!("'{shown}' is neither a file nor a directory")));
        }
        Ok(_) if directory => return Err(Failure::refused(format!("'{shown}' is not a directory"))),
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    let Some(name) = end.file_name() else {
        return Err(Failure::refused(format!("there is no directory '{shown}'")));
    };
    let above = match end.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
        _ => PathBuf::from("."),
    };
    let root = beneath::open_root(&above).map_err(|error| {
        let above = clean(&above.display().to_string());
        Failure::local(format!("cannot copy into the directory '{above}'"), &error)
    })?;
    Ok((root, Destination::Named { name: name.to_owned(), exists, directory }))
}

#[cfg(test)]
mod tests;
