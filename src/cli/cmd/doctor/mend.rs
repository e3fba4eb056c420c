//! `abx doctor --fix`: carries out what a check proposes, after asking.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::Check;
use crate::cli::context::{Context, can_ask};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::methods::SessionAdopt;
use crate::proto::sessions::AdoptParams;

/// How something is mended. Nothing that a user made is removed.
#[derive(Debug)]
pub(super) enum Mend {
    /// These files get these modes.
    Modes(Vec<(PathBuf, u32)>),
    /// A socket that nobody listens on goes.
    Socket(PathBuf),
    /// A container of abx without a row becomes a session of this name again.
    Adopt { name: String, container: String },
}

impl Mend {
    /// What it does, to be agreed to.
    fn question(&self) -> String {
        match self {
            Self::Modes(files) => format!("Take the rights of others away from {} files?", files.len()),
            Self::Socket(path) => format!("Remove the left-over socket {}?", path.display()),
            Self::Adopt { name, container } => {
                format!("Make the container {} a session again, as '{}'?", clean(container), clean(name))
            }
        }
    }

    /// Does it, where it is something of this machine alone.
    pub(super) fn apply_locally(&self) -> io::Result<()> {
        match self {
            Self::Modes(files) => files
                .iter()
                .try_for_each(|(path, mode)| fs::set_permissions(path, Permissions::from_mode(*mode))),
            Self::Socket(path) => fs::remove_file(path),
            Self::Adopt { .. } => Ok(()),
        }
    }

    fn apply(&self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Adopt { name, container } => {
                let (name, container) = (name.clone(), container.clone());
                context.call::<SessionAdopt>(&AdoptParams { name, container, agent: None }).map(drop)
            }
            local => local.apply_locally().map_err(|error| Failure::local("cannot mend it", &error)),
        }
    }
}

/// Mends what can be, asking for each unless `yes`.
///
/// # Errors
/// When there is nobody to ask. What fails is said, and the rest is tried.
pub(super) fn all(context: &Context, checks: &[Check], yes: bool) -> Result<(), Failure> {
    let mends: Vec<&Mend> = checks.iter().filter_map(|check| check.mend.as_ref()).collect();
    if !mends.is_empty() && !yes && !can_ask() {
        return Err(Failure::usage("there is nobody to ask").with_hint("abx doctor --fix -y"));
    }
    for mend in mends {
        let question = mend.question();
        if !yes && !context.agrees(&format!("{question} [y/N] ")) {
            continue;
        }
        match mend.apply(context) {
            Ok(()) => context.output.note(&format!("Done: {}", question.trim_end_matches('?'))),
            Err(failure) => context.output.note(&failure.text(false)),
        }
    }
    Ok(())
}
