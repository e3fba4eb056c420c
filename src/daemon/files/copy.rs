//! Copies: the end that is in the sandbox. What is unpacked where, and under which name, follows `docker cp`.

use super::path::{self, Cleaned};
use super::running::Running;
use super::value::wire_kind;
use super::{Files, Found};
use crate::daemon::awake::Use;
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::engine::{Archive, ArchiveSource, FileKind};
use crate::proto::copy::{CopyOpen, CopyPlace};

/// Files on their way out.
pub struct CopyOut {
    /// What they are.
    pub place: CopyPlace,
    /// Their tar stream.
    pub archive: Archive,
    /// Keeps the session in use.
    pub files: Files,
}

/// A place for files on their way in. Nothing is written before [`CopyIn::write`].
pub struct CopyIn {
    /// Where it is.
    pub place: CopyPlace,
    root: String,
    files: Files,
}

impl Driver {
    /// Begins a copy out of a sandbox, and gives what says when it has to end.
    ///
    /// # Errors
    /// `session_not_found`, `file_not_found`, `wrong_state`, `invalid_params` and the engine's kinds.
    pub async fn copy_out(
        &self,
        session: impl Into<Use>,
        asked: &CopyOpen,
    ) -> Result<(CopyOut, Running), Failure> {
        let files = self.files(session).await?;
        let running = self.0.copies.begin(&files.session.id);
        let Cleaned { path, contents, directory } = files.clean(&asked.path).await?;
        let found = if asked.follow || directory {
            files.follow(&path).await?
        } else {
            Found { stat: files.stat(&path).await?, path: path.clone() }
        };
        let Some(stat) = found.stat else { return Err(files.missing(&path)) };
        if directory && stat.kind != FileKind::Directory {
            return Err(files.not_a_directory(&path));
        }
        let name = path::split(&path).map(|(_, name)| name.to_owned()).filter(|_| !contents);
        // The root has no name either; what is in it comes as the content of any directory does.
        let read =
            if name.is_none() { format!("{}/.", found.path.trim_end_matches('/')) } else { found.path };
        let archive = self.0.engine.read_archive(&files.sandbox, &read).await;
        let archive = archive.map_err(|error| files.explain(error))?;
        let place = CopyPlace {
            path,
            kind: Some(wire_kind(stat.kind)),
            size_bytes: (stat.kind == FileKind::File).then_some(stat.size_bytes),
            directory: None,
            prefix: String::new(),
            name,
            owner: None,
        };
        Ok((CopyOut { place, archive, files }, running))
    }

    /// Finds the place of a copy into a sandbox, and gives what says when it has to end.
    ///
    /// # Errors
    /// As [`Driver::copy_out`]'s.
    pub async fn copy_in(
        &self,
        session: impl Into<Use>,
        asked: &CopyOpen,
    ) -> Result<(CopyIn, Running), Failure> {
        let files = self.files(session).await?;
        let running = self.0.copies.begin(&files.session.id);
        let cleaned = files.clean(&asked.path).await?;
        let Found { path, stat } = files.follow(&cleaned.path).await?;
        let there = stat.as_ref().map(|stat| stat.kind);
        let (directory, name) = match (there, path::split(&path)) {
            (Some(FileKind::Directory), _) | (_, None) => (path.clone(), None),
            (Some(FileKind::Other | FileKind::Symlink), _) => {
                let text =
                    format!("'{path}' in session '{}' is neither a file nor a directory", files.session.name);
                return Err(Failure::params(text).about(files.session.name.as_str()));
            }
            (Some(FileKind::File), _) if cleaned.directory => return Err(files.not_a_directory(&path)),
            (_, Some((parent, name))) => (files.directory(parent).await?, Some(name.to_owned())),
        };
        let (root, prefix) = files.root(&directory).await?;
        let place = CopyPlace {
            kind: there.map(wire_kind),
            size_bytes: stat.filter(|stat| stat.kind == FileKind::File).map(|stat| stat.size_bytes),
            directory: Some(directory),
            prefix,
            name,
            owner: Some(files.owner().await?),
            path,
        };
        Ok((CopyIn { place, root, files }, running))
    }
}

impl CopyIn {
    /// Unpacks a tar stream there.
    ///
    /// # Errors
    /// The engine's. What was unpacked before the failure stays.
    pub async fn write(self, archive: ArchiveSource) -> Result<(), Failure> {
        let files = &self.files;
        files.note_change().await?;
        let written = files.driver.0.engine.write_archive(&files.sandbox, &self.root, archive).await;
        // A save that came in between may hold a part of the files only.
        let noted = files.note_change().await;
        written.map_err(|error| {
            let what = format!("cannot copy to '{}' in session '{}'", self.place.path, files.session.name);
            files.explain(error).while_doing(what)
        })?;
        noted
    }
}
