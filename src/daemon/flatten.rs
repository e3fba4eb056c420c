//! Flattening: a snapshot whose image stands on too many layers gets one with few, in the background.
//!
//! Each snapshot of what was made from a snapshot is a layer more, engines fail at some number of them, and become slow
//! before that. The image of a snapshot alone says whether it is due, so that nothing has to be remembered: what was cut off
//! is found by the next comparison. The engine takes the new image in under a name that is nobody's; then the snapshot's name
//! and its row go over to it, and the old image goes when nothing needs it any more.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::timeout;

use self::image::Flat;
use self::spool::Spool;
use self::uses::{InUse, Uses};
use super::driver::{Driver, Held};
use super::failure::Failure;
use super::files::give::{Sink, give};
use super::files::unpack::{Refusal, unpack};
use super::progress::Report;
use crate::engine::{EngineError, Image, labels};
use crate::fault;
use crate::model::id::SnapshotId;
use crate::model::session::{Snapshot, SnapshotState};
use crate::paths;
use crate::proto::errors::Kind;

mod image;
mod spool;
mod uses;

/// Layers from which on a snapshot's image is flattened: half of what engines can have, so that it is done long before it
/// must be.
const FROM_LAYERS: usize = 64;

/// Layers from which on nothing is made from a snapshot before that is flattened: whoever takes snapshots faster than they
/// are flattened in the background would else come to where engines fail.
const WAIT_LAYERS: usize = 96;

/// Layers from which on hardly anything can be made from a snapshot at all: what is made from it could not be saved.
const LAST_LAYERS: usize = 119;

/// How long whoever makes something from a snapshot waits for its flattening, where it would do without.
const SOON: Duration = Duration::from_secs(60);

/// How long where it would not.
const AT_LAST: Duration = Duration::from_secs(600);

/// Most layers that an image shares with others when it was flattened: those of the image that the first sandbox was made
/// from, unless it has more of its own than leaves room for others.
const KEPT_LAYERS: usize = 32;

/// Times that an image is given to the engine: what waits for its name is nobody's, and a comparison may remove it.
const TRIES: usize = 3;

/// Room on the disk beyond what an image takes that flattening leaves to others, in bytes.
const SPARE_BYTES: u64 = 256 << 20;

/// Snapshots that are due.
#[derive(Debug, Default)]
pub(super) struct Deep {
    ids: Mutex<Ids>,
    wake: Notify,
    /// Held while an image is made: never two at once.
    making: AsyncMutex<()>,
    /// Held while a snapshot's name and its row go over to another image.
    moving: AsyncMutex<()>,
    /// Snapshots whose images must stay where they are.
    pub(super) uses: Uses,
}

#[derive(Debug, Default)]
struct Ids {
    waiting: BTreeSet<SnapshotId>,
    /// Those that could not be flattened for a reason that stays.
    given_up: BTreeSet<SnapshotId>,
}

impl Deep {
    /// Has a snapshot flattened, if it is due with so many layers.
    pub(super) fn add(&self, snapshot: &SnapshotId, layers: usize) {
        let mut ids = self.ids();
        if layers >= FROM_LAYERS && !ids.given_up.contains(snapshot) {
            ids.waiting.insert(snapshot.clone());
            self.wake.notify_one();
        }
    }

    /// The latest first: that is what the next sandbox is made from.
    fn next(&self) -> Option<SnapshotId> {
        self.ids().waiting.pop_last()
    }

    fn is_given_up(&self, snapshot: &SnapshotId) -> bool {
        self.ids().given_up.contains(snapshot)
    }

    fn give_up(&self, snapshot: SnapshotId) {
        self.ids().given_up.insert(snapshot);
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a sandbox is to be made from. The image is there at least until this is dropped.
#[derive(Debug)]
pub(super) struct Foundation {
    /// Its id.
    pub(super) image: String,
    _in_use: InUse,
}

/// Flattens what is due, for ever.
pub(super) async fn run(driver: Driver) {
    loop {
        while let Some(id) = driver.0.deep.next() {
            driver.flatten_or_note(&id, None).await;
        }
        driver.0.deep.wake.notified().await;
    }
}

impl Driver {
    /// The image of a snapshot, for a sandbox that is to stand on it. The session has its turn.
    ///
    /// # Errors
    /// As for [`Driver::require_image`], and `wrong_state` where the request was cancelled.
    pub(super) async fn foundation(
        &self,
        snapshot: &Snapshot,
        held: &Held,
        report: &Report,
    ) -> Result<Foundation, Failure> {
        let layers = self.require_image(snapshot).await?.layers.len();
        if layers >= WAIT_LAYERS && !self.0.deep.is_given_up(&snapshot.id) {
            report.line(format!("flattening {}, which stands on {layers} layers", snapshot.name));
            let limit = if layers < LAST_LAYERS { SOON } else { AT_LAST };
            let flattening = timeout(limit, self.flatten_or_note(&snapshot.id, Some(held)));
            let ended = report.unless_cancelled(async { Ok::<_, Failure>(flattening.await) }).await?;
            if ended.is_err() {
                tracing::info!(
                    snapshot = snapshot.name,
                    layers,
                    "goes on without waiting for its flattening"
                );
                self.0.deep.add(&snapshot.id, layers);
            }
        }
        let in_use = self.0.deep.uses.of([&snapshot.id]).await;
        Ok(Foundation { image: self.require_image(snapshot).await?.id, _in_use: in_use })
    }

    /// As [`Driver::flatten`]; one that cannot be flattened, for a reason that stays, is not tried again.
    async fn flatten_or_note(&self, id: &SnapshotId, held: Option<&Held>) {
        let Err(failure) = self.flatten(id, held).await else { return };
        tracing::warn!(%failure, causes = ?failure.causes, snapshot = %id, "a snapshot is not flattened");
        let passes = [Kind::EngineUnavailable, Kind::EngineTimeout, Kind::StoreFull, Kind::StoreBusy];
        if !passes.contains(&failure.kind) {
            self.0.deep.give_up(id.clone());
        }
    }

    /// Flattens a snapshot, if it is there and due. `held` says that the caller has its session's turn.
    /// One that is used stays as it is, until the next comparison.
    pub(super) async fn flatten(&self, id: &SnapshotId, held: Option<&Held>) -> Result<(), Failure> {
        let making = self.0.deep.making.lock().await;
        let Some(snapshot) = self.ready(id).filter(|_| self.0.deep.uses.try_alone(id).is_some()) else {
            return Ok(());
        };
        let Some(old) = self.0.engine.image(&snapshot.image_id).await? else { return Ok(()) };
        if old.layers.len() < FROM_LAYERS {
            return Ok(());
        }
        tracing::info!(snapshot = snapshot.name, layers = old.layers.len(), "flattening a snapshot");
        fault::point("flatten.before").await;
        let flat = Arc::new(self.flat(&old).await?);
        drop(making);
        for _ in 0..TRIES {
            self.take_in(&snapshot, &flat).await?;
            if self.move_over(&snapshot, &old, held).await? {
                return Ok(());
            }
        }
        let text = "the image that it took in is gone again".to_owned();
        Err(EngineError::Failed { call: "load_images", text }.into())
    }

    /// A snapshot that is there.
    fn ready(&self, id: &SnapshotId) -> Option<Arc<Snapshot>> {
        let all = self.0.store.snapshots(None);
        all.into_iter().find(|s| s.id == *id && s.state == SnapshotState::Ready)
    }

    /// Makes the image with few layers, on this machine's disk.
    async fn flat(&self, old: &Image) -> Result<Flat, Failure> {
        self.require_room(old)?;
        let kept = labels::base_layers(old).min(KEPT_LAYERS);
        let archive = self.0.engine.image_archive(&[&old.id]).await?;
        let home = self.0.home.clone();
        let make = move |archive| -> io::Result<Flat> {
            let scratch = || tempfile::tempfile_in(&home);
            Flat::make(Spool::fill(scratch()?, archive)?, scratch()?, kept)
        };
        unpack(archive, move |archive| make(archive).map_err(unusable)).await
    }

    /// The archive and the layer that comes of it may be as large as the image, each.
    fn require_room(&self, image: &Image) -> Result<(), Failure> {
        let wanted = image.size_bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
        // Where nobody tells, it is found out.
        let free = paths::free_bytes(&self.0.home).unwrap_or(u64::MAX);
        if free >= wanted {
            return Ok(());
        }
        let text =
            format!("the disk of {} has {free} bytes of the {wanted} that it takes", self.0.home.display());
        Err(Failure::new(Kind::StoreFull, text))
    }

    /// Has the engine take the image in, under a name that is nobody's.
    async fn take_in(&self, snapshot: &Snapshot, flat: &Arc<Flat>) -> Result<(), Failure> {
        let _making = self.0.deep.making.lock().await;
        fault::point("flatten.load").await;
        let (flat, reference) = (Arc::clone(flat), labels::flat_reference(&snapshot.id));
        let write = move |to: Sink| -> Result<(), Refusal> { Ok(flat.write(to, &reference)?) };
        match give(&*self.0.engine, |_| {}, write).await {
            Ok(()) => {}
            Err(Refusal::Said(failure)) => return Err(*failure),
            Err(Refusal::Garbled(error)) => {
                return Err(Failure::new(Kind::Internal, format!("the image cannot be written: {error}")));
            }
        }
        fault::point("flatten.loaded").await;
        Ok(())
    }

    /// Lets a snapshot's name and its row go over to an image that the engine took in. False where that is gone already.
    async fn move_over(
        &self,
        snapshot: &Snapshot,
        old: &Image,
        held: Option<&Held>,
    ) -> Result<bool, Failure> {
        // Nothing may be made from the snapshot meanwhile, and nothing it stands on be taken away.
        let _turn = match &snapshot.session {
            Some(id) if held.is_none() => self.hold_id(id).await,
            _ => None,
        };
        let alone = self.0.deep.uses.try_alone(&snapshot.id);
        let made = self.0.engine.image(&labels::flat_reference(&snapshot.id)).await?;
        if alone.is_none() {
            tracing::info!(snapshot = snapshot.name, "a snapshot is used, and is flattened later");
        } else if self.ready(&snapshot.id).is_some_and(|row| row.image_id == old.id) {
            let _moving = self.0.deep.moving.lock().await;
            let Some(made) = &made else { return Ok(false) };
            match self.0.engine.replace_snapshot(&snapshot.id, &old.id, &made.id).await {
                Err(EngineError::NoImage { .. }) => return Ok(false),
                replaced => replaced?,
            }
            fault::point("flatten.named").await;
            self.move_row(snapshot, made).await?;
            fault::point("flatten.row").await;
        }
        for image in made.iter().chain([old].into_iter().filter(|_| alone.is_some())) {
            if let Err(error) = self.0.engine.sweep_image(&image.id).await {
                tracing::warn!(%error, image = image.id, "what nothing needs stays until the next look at all images");
            }
        }
        Ok(true)
    }

    async fn move_row(&self, snapshot: &Snapshot, image: &Image) -> Result<(), Failure> {
        let (id, name) = (snapshot.id.clone(), snapshot.name.clone());
        let (image_id, size_bytes) = (image.id.clone(), image.size_bytes);
        let own_bytes = labels::own_bytes(image);
        let moved = self.0.store.write(move |tx| {
            let row =
                tx.snapshot_named(&name).filter(|row| row.id == id && row.state == SnapshotState::Ready);
            let Some(row) = row else { return Ok(false) };
            tx.put_snapshot(&Snapshot { image_id, size_bytes, own_bytes, ..row })?;
            Ok(true)
        });
        if !moved.await? {
            // It was deleted meanwhile, and its name with it.
            self.0.engine.remove_snapshot(&snapshot.id).await?;
        }
        Ok(())
    }

    /// Brings a row up to the image that has the snapshot's name, where a flattening was cut off in between.
    pub(super) async fn follow_name(&self, snapshot: &SnapshotId) -> Result<(), Failure> {
        let Some(_alone) = self.0.deep.uses.try_alone(snapshot) else { return Ok(()) };
        let _moving = self.0.deep.moving.lock().await;
        let Some(row) = self.ready(snapshot) else { return Ok(()) };
        match self.0.engine.image(&labels::snapshot_reference(snapshot)).await? {
            Some(image) if image.id != row.image_id => {
                tracing::info!(snapshot = row.name, "a snapshot was flattened, and its row did not know");
                self.move_row(&row, &image).await?;
                for image in [&image.id, &row.image_id] {
                    self.0.engine.sweep_image(image).await?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Why an image cannot be flattened, where that is not the disk's fault.
fn unusable(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => {
            Failure::new(Kind::Limit, "it has too many files to be flattened").into()
        }
        io::ErrorKind::StorageFull => Failure::new(Kind::StoreFull, error.to_string()).into(),
        _ => error.into(),
    }
}
