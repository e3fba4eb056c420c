//! Files from one sandbox to another, or to another place of the same one.

use std::fs::File;
use std::io::{self, Read, Seek};

use super::entry::Names;
use super::pass;
use super::place::fit;
use super::watch::Watch;
use super::wire::{self, Cause, Download, Upload};
use super::{explain, in_destination, out_source, owner};
use crate::cli::args::CpArgs;
use crate::cli::context::{Context, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::copy::{CopyPlace, Direction};
use crate::proto::methods::SessionGet;
use crate::proto::sessions::NameParams;

/// What comes out of the one sandbox.
struct Taken {
    place: CopyPlace,
    /// Why either stream ended.
    cause: Cause,
    /// What is being done, for a failure.
    what: String,
}

/// Copies from one sandbox to the other.
///
/// # Errors
/// Either side's.
pub(super) fn across(
    context: &Context,
    (session, path): (&String, &String),
    to: (&String, &String),
    args: &CpArgs,
    watch: &mut Watch<'_>,
) -> Result<(), Failure> {
    let same = same_session(context, session, to.0)?;
    let (from, place) = wire::open(context, session, path, Direction::Out, args)?;
    watch.expect(place.size_bytes);
    let cause = Cause::default();
    let mut download = Download::new(from, cause.clone());
    let taken = Taken { place, cause, what: format!("cannot copy from '{}'", clean(session)) };
    if !same {
        return put(context, (&mut download, &taken), to, args, watch);
    }
    // While an engine gives files of a sandbox, it does nothing else about it: all of them must be here before it is
    // asked about the place they go to.
    let kept = keep(&mut download, watch);
    drop(download);
    match kept {
        Ok(mut kept) => put(context, (&mut kept, &taken), to, args, watch),
        Err(error) => explain(Err(error), &taken.cause, &taken.what),
    }
}

/// Whether two words mean one session: it has its own name, and that of its sandbox.
fn same_session(context: &Context, one: &str, other: &str) -> Result<bool, Failure> {
    let id = |name: &str| {
        let raw = context.call::<SessionGet>(&NameParams { name: name.to_owned() })?;
        Ok::<_, Failure>(understand::<SessionGet>(&raw)?.id)
    };
    Ok(one == other || id(one)? == id(other)?)
}

/// Reads everything into a file that has no name, and is gone with whoever has it.
fn keep(from: &mut impl Read, watch: &mut Watch<'_>) -> io::Result<File> {
    let mut kept = tempfile::tempfile()?;
    watch.transfer(from, &mut kept)?;
    kept.rewind()?;
    watch.again();
    Ok(kept)
}

fn put(
    context: &Context,
    (from, taken): (&mut impl Read, &Taken),
    (session, path): (&String, &String),
    args: &CpArgs,
    watch: &mut Watch<'_>,
) -> Result<(), Failure> {
    let (to, place) = wire::open(context, session, path, Direction::In, args)?;
    let source = out_source(&taken.place);
    let top = fit(&source, in_destination(&place, path), &clean(&place.path))?;
    watch.goes_to(session, &place);
    let names = Names { strip: source.name.is_some(), top };
    let to = Upload::new(to, taken.cause.clone());
    let passed = pass::pass(&mut *from, to, (&names, &place.prefix), owner(&place, args), watch);
    // The end of the one must be known before the other is told that this was all.
    let passed = passed.and_then(|to| io::copy(from, &mut io::sink()).map(|_| to));
    explain(passed.and_then(Upload::finish), &taken.cause, &taken.what)
}
