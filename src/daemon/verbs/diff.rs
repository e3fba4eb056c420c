//! In what two snapshots differ, or a snapshot and its session as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::daemon::driver::Driver;
use crate::daemon::failure::{Failure, quoted};
use crate::daemon::files::unpack::{Refusal, unpack};
use crate::daemon::layers::{Difference, Layer, Layers, Name, Reader, ancestors, differences, plain};
use crate::engine::{Change, ChangeKind, Observed};
use crate::model::session::Snapshot;
use crate::proto::errors::Kind;

/// What differs, by path.
pub type Differences = Vec<(String, Differs)>;

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differs {
    /// Only in the second.
    Added,
    /// In both, but not alike.
    Changed,
    /// Only in the first.
    Deleted,
}

impl Driver {
    /// Tells in what `to` differs from the snapshot `from`: another snapshot, or its session as it is now.
    ///
    /// # Errors
    /// As documented for `snapshot.diff`.
    pub async fn diff(&self, from: &str, to: Option<&str>) -> Result<Differences, Failure> {
        let from = self.ready_snapshot(from)?;
        let found = match to {
            Some(to) => self.between(&from, &*self.ready_snapshot(to)?).await?,
            None => self.since(&from).await?,
        };
        let word = |difference| match difference {
            Difference::Added => Differs::Added,
            Difference::Changed => Differs::Changed,
            Difference::Deleted => Differs::Deleted,
        };
        let path = |path: &[u8]| format!("/{}", String::from_utf8_lossy(path));
        Ok(found.into_iter().map(|(name, difference)| (path(&name), word(difference))).collect())
    }

    async fn between(&self, from: &Snapshot, to: &Snapshot) -> Result<BTreeMap<Name, Difference>, Failure> {
        if from.image_id == to.image_id {
            return Ok(BTreeMap::new());
        }
        let _in_use = self.0.deep.uses.of([&from.id, &to.id]).await;
        let (from, to) = (self.require_image(from).await?.id, self.require_image(to).await?.id);
        let (_, layers) = self.layers(&from, &to, Reader::default()).await?;
        let stack = |image: &str| layers.stack(image).ok_or_else(unreadable);
        Ok(differences(&stack(&from)?, &stack(&to)?))
    }

    /// What the session of a snapshot has otherwise now.
    async fn since(&self, from: &Arc<Snapshot>) -> Result<BTreeMap<Name, Difference>, Failure> {
        let name = self.session_of(from);
        let Ok(session) = self.session(&name) else {
            let text = format!("session '{name}' of snapshot '{}' is gone", from.name);
            return Err(Failure::new(Kind::WrongState, text)
                .hint(format!("abx snapshot diff {} ANOTHER", quoted(&from.name))));
        };
        let Some(seen) = self.observe(&session).await? else {
            // Without a container it is what it would be brought back from.
            return match self.newest_snapshot(&session) {
                Some(newest) => self.between(from, &newest).await,
                None => Err(Failure::refused(&session, crate::model::step::Refusal::Lost)),
            };
        };
        let changes = self.0.engine.changes(&seen.id).await?;
        if seen.image_id == from.image_id {
            return Ok(as_told(changes));
        }
        let _in_use = self.0.deep.uses.of([&from.id]).await;
        let from = self.require_image(from).await?.id;
        let (reader, changed) = self.changed(&seen, changes).await?;
        let (_, layers) = self.layers(&from, &seen.image_id, reader).await?;
        let stack = |image: &str| layers.stack(image).ok_or_else(unreadable);
        let mut now = stack(&seen.image_id)?;
        now.push(&changed);
        Ok(differences(&stack(&from)?, &now))
    }

    /// What a container has over its image, as a layer.
    async fn changed(&self, seen: &Observed, changes: Vec<Change>) -> Result<(Reader, Layer), Failure> {
        let (gone, there): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| change.kind == ChangeKind::Deleted);
        let there: BTreeSet<Name> = there.iter().map(|change| plain(change.path.as_bytes())).collect();
        let files = self.0.engine.export(&seen.id).await?;
        let read = move |archive: tar::Archive<_>| {
            let mut reader = Reader::default();
            let layer = reader.layer(archive, |path| there.contains(path)).map_err(too_many)?;
            Ok((reader, layer))
        };
        let (reader, files) = unpack(files, read).await?;
        let gone = gone.iter().map(|change| plain(change.path.as_bytes()));
        Ok((reader, Layer::over(files, gone)))
    }

    async fn layers(&self, a: &str, b: &str, mut reader: Reader) -> Result<(Reader, Layers), Failure> {
        let archive = self.0.engine.image_archive(&[a, b]).await?;
        unpack(archive, move |archive| {
            let layers = reader.images(archive).map_err(too_many)?;
            Ok((reader, layers))
        })
        .await
    }
}

/// What a container has over its image, where that is the snapshot. Directories in which something changed are told
/// as changed by the engine, whether or not they did themselves.
fn as_told(changes: Vec<Change>) -> BTreeMap<Name, Difference> {
    let names: BTreeSet<Name> = changes.iter().map(|change| plain(change.path.as_bytes())).collect();
    let parents: BTreeSet<&[u8]> = names.iter().flat_map(|name| ancestors(name)).collect();
    let told = changes.iter().map(|change| {
        let difference = match change.kind {
            ChangeKind::Added => Difference::Added,
            ChangeKind::Modified => Difference::Changed,
            ChangeKind::Deleted => Difference::Deleted,
        };
        (plain(change.path.as_bytes()), difference)
    });
    told.filter(|(name, difference)| *difference != Difference::Changed || !parents.contains(&**name))
        .collect()
}

fn too_many(error: std::io::Error) -> Refusal {
    if error.kind() == std::io::ErrorKind::QuotaExceeded {
        return Failure::new(Kind::Limit, "they have too many files to be compared").into();
    }
    error.into()
}

fn unreadable() -> Failure {
    Failure::new(Kind::EngineError, "the engine's archive of the images has layers that cannot be read")
}
