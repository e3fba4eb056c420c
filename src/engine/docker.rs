//! The Docker engine: the only file naming the library that speaks its API (podman speaks it too).
//!
//! The library is pinned: it is used for the API's types and calls, while connections and streams are our own (`hijack`).

mod api;
mod archive;
mod containers;
mod create;
mod disk;
mod exec;
mod farewell;
mod guest;
mod hints;
mod link;
mod names;
mod observe;
mod pull;
mod snapshot;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

use self::api::{
    CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, RenameContainerOptionsBuilder,
    StopContainerOptionsBuilder,
};
pub use self::exec::start_failure;
use self::link::{About as On, Link, ORDINARY, SLOW, within};
use self::names::{check, is_name, is_reference};
use self::snapshot::optional;
use super::address::Settings;
use super::{
    About, Archive, ArchiveSource, Change, CommitSpec, CreateSpec, Disk, Engine, EngineError, ExecIo,
    ExecSpec, ExecState, Hint, Image, Observed, PathStat, Progress, RunState, SandboxDefaults, WindowSize,
    labels,
};
use crate::model::id::SnapshotId;
use crate::model::session::Excluded;

/// Containers that a list inspects at once.
const INSPECTS_AT_ONCE: usize = 8;

/// Between two looks at a container that someone else is removing.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);

/// Shortest beginning of an id that stands for a container, in characters: what the engine itself shows.
const SHORT_ID_CHARS: usize = 12;

/// A Docker-compatible engine. It is looked for at the first call, and anew after a connection broke.
pub struct DockerEngine {
    link: Arc<Link>,
    execs: exec::Execs,
}

impl DockerEngine {
    /// An engine that is found by these settings. Connects to nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { link: Arc::new(Link::new(settings)), execs: exec::Execs::default() }
    }

    async fn raw_inspect(
        &self,
        call: &'static str,
        id: &str,
    ) -> Result<Option<api::ContainerInspectResponse>, EngineError> {
        if !is_name(id) {
            return Ok(None);
        }
        containers::one(&self.link, call, id).await
    }

    /// Waits for a removal that someone else began.
    async fn gone(&self, id: &str) -> Result<(), EngineError> {
        let wait = async {
            while self.raw_inspect("remove", id).await?.is_some() {
                tokio::time::sleep(REMOVAL_PAUSE).await;
            }
            Ok(())
        };
        within("remove", SLOW, wait).await?
    }

    /// Containers with all of these labels.
    async fn labelled(&self, call: &'static str, labels: Vec<String>) -> Result<Vec<Observed>, EngineError> {
        let all = containers::all(&self.link, call, &labels).await?;
        Ok(all.into_iter().map(observe::listed).collect())
    }

    async fn find(&self, spec: &CreateSpec) -> Result<Option<Observed>, EngineError> {
        let wanted = vec![
            format!("{}={}", labels::SESSION_ID, spec.session.id),
            format!("{}={}", labels::SESSION_HOME, spec.home),
        ];
        let found = self.labelled("create", wanted).await?.into_iter().find(|o| o.name == spec.sandbox);
        match found {
            Some(found) => self.inspect(&found.id).await,
            None => Ok(None),
        }
    }

    async fn make(&self, spec: &CreateSpec) -> Result<String, EngineError> {
        let cpus = match spec.session.spec.limits.cpu_millis {
            Some(_) => Some(self.link.cpus().await?),
            None => None,
        };
        let guest = guest::of(&self.link, spec).await?;
        // The labels say what came of it.
        let spec = &CreateSpec { guest: spec.guest.clone().filter(|_| guest.is_some()), ..spec.clone() };
        let refused = match self.make_with(spec, cpus, guest.as_ref()).await {
            Err(error) if guest::is_not_shared(&error) => error,
            made => return made,
        };
        let Some(guest) = guest.map(guest::Guest::bridged) else { return Err(refused) };
        let id = self.make_with(spec, cpus, Some(&guest)).await?;
        if let Err(error) = guest.copy(&self.link, &id).await {
            // Its main program is not in it.
            self.remove(&id).await?;
            return Err(error);
        }
        Ok(id)
    }

    async fn make_with(
        &self,
        spec: &CreateSpec,
        cpus: Option<u64>,
        guest: Option<&guest::Guest>,
    ) -> Result<String, EngineError> {
        let options = CreateContainerOptionsBuilder::new().name(&spec.sandbox).build();
        let body = create::body(spec, cpus, guest);
        let made = self
            .link
            .call("create", SLOW, On::Image(&spec.image), |client| async move {
                client.docker.create_container(Some(options), body).await
            })
            .await?;
        Ok(made.id)
    }

    /// Whether a refused change had nothing to change.
    async fn is_now(&self, call: &'static str, id: &str, state: RunState) -> Result<bool, EngineError> {
        let seen = self.raw_inspect(call, id).await?.map(observe::inspected);
        Ok(seen.is_some_and(|seen| seen.state == state))
    }
}

#[async_trait::async_trait]
impl Engine for DockerEngine {
    async fn about(&self) -> Result<About, EngineError> {
        let client = self.link.client().await?;
        let before = jiff::Timestamp::now();
        let info = self
            .link
            .call("about", ORDINARY, On::Nothing, |client| async move { client.docker.info().await })
            .await?;
        let after = jiff::Timestamp::now();
        let theirs = info.system_time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        // The engine read its clock somewhere between.
        let ours = i64::midpoint(before.as_millisecond(), after.as_millisecond());
        Ok(About {
            address: client.candidate.address.to_string(),
            source: client.candidate.source.clone(),
            version: client.version.clone(),
            api_version: client.api.to_string(),
            clock_skew_ms: theirs.map_or(0, |theirs| theirs.as_millisecond() - ours),
            // Podman makes an id up for each answer.
            identity: observe::identity(&info).filter(|_| client.podman.is_none()),
            maps_users: info.security_options.iter().flatten().any(|option| observe::maps_users(option)),
        })
    }

    async fn create(&self, spec: &CreateSpec) -> Result<Observed, EngineError> {
        if let Some(found) = self.find(spec).await? {
            return Ok(found);
        }
        let id = match self.make(spec).await {
            Ok(id) => id,
            // An earlier create of ours, given up as late, may have come through in between.
            Err(error @ EngineError::Conflict { .. }) => {
                return self.find(spec).await?.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        self.inspect(&id).await?.ok_or(EngineError::NoSandbox { id })
    }

    async fn start(&self, id: &str) -> Result<(), EngineError> {
        check(id)?;
        self.link
            .call("start", SLOW, On::Sandbox(id), |client| async move {
                client.docker.start_container(id, None).await
            })
            .await
    }

    async fn farewell(&self, id: &str, grace: Duration) -> Result<Duration, EngineError> {
        farewell::say(self, id, grace).await
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), EngineError> {
        let Some(seen) = self.raw_inspect("stop", id).await?.map(observe::inspected) else { return Ok(()) };
        match seen.state {
            RunState::Created | RunState::Exited => return Ok(()),
            // Frozen processes take no TERM.
            RunState::Paused => match self.unpause(id).await {
                Err(EngineError::NoSandbox { .. }) => return Ok(()),
                other => other?,
            },
            RunState::Running => {}
        }
        let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
        let options =
            StopContainerOptionsBuilder::new().t(i32::try_from(seconds).unwrap_or(i32::MAX)).build();
        let deadline = grace.saturating_add(SLOW);
        self.link
            .call("stop", deadline, On::Sandbox(id), |client| async move {
                optional(client.docker.stop_container(id, Some(options)).await).map(|_| ())
            })
            .await
    }

    async fn pause(&self, id: &str) -> Result<(), EngineError> {
        check(id)?;
        let done = self.link.call("pause", ORDINARY, On::Sandbox(id), |client| async move {
            client.docker.pause_container(id).await
        });
        match done.await {
            Err(EngineError::Conflict { .. } | EngineError::Failed { .. })
                if self.is_now("pause", id, RunState::Paused).await? =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn unpause(&self, id: &str) -> Result<(), EngineError> {
        check(id)?;
        let done = self.link.call("unpause", ORDINARY, On::Sandbox(id), |client| async move {
            client.docker.unpause_container(id).await
        });
        match done.await {
            Err(EngineError::Conflict { .. } | EngineError::Failed { .. })
                if self.is_now("unpause", id, RunState::Running).await? =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn remove(&self, id: &str) -> Result<(), EngineError> {
        let Some(seen) = self.raw_inspect("remove", id).await? else { return Ok(()) };
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let gone = self
            .link
            .call("remove", SLOW, On::Sandbox(id), |client| async move {
                match client.docker.remove_container(id, Some(options)).await {
                    // Someone else is removing it.
                    Err(api::Error::DockerResponseServerError { status_code: 409, .. }) => Ok(false),
                    other => optional(other).map(|_| true),
                }
            })
            .await?;
        if !gone {
            self.gone(id).await?;
        }
        snapshot::sweep(&self.link, seen.image.as_deref().unwrap_or_default()).await
    }

    async fn rename(&self, id: &str, name: &str) -> Result<(), EngineError> {
        check(id)?;
        let options = RenameContainerOptionsBuilder::new().name(name).build();
        let done = self
            .link
            .call("rename", ORDINARY, On::Sandbox(id), |client| async move {
                client.docker.rename_container(id, options).await
            })
            .await;
        match done {
            Err(error @ (EngineError::Conflict { .. } | EngineError::Failed { .. })) => {
                let seen = self.raw_inspect("rename", id).await?.map(observe::inspected);
                if seen.is_some_and(|seen| seen.name == name) { Ok(()) } else { Err(error) }
            }
            other => other,
        }
    }

    async fn inspect(&self, id: &str) -> Result<Option<Observed>, EngineError> {
        let seen = self.raw_inspect("inspect", id).await?.map(observe::inspected);
        // The engine also takes any beginning of an id, which could be another container's.
        Ok(seen.filter(|seen| {
            seen.id == id || seen.name == id || (id.len() >= SHORT_ID_CHARS && seen.id.starts_with(id))
        }))
    }

    async fn list(&self, home: &str) -> Result<Vec<Observed>, EngineError> {
        let all = self.labelled("list", vec![format!("{}={home}", labels::SESSION_HOME)]).await?;
        let looks = all.into_iter().map(|listed| async move {
            // One that went away since is not listed.
            if observe::is_doubtful(&listed) { self.inspect(&listed.id).await } else { Ok(Some(listed)) }
        });
        let looked = futures_util::stream::iter(looks).buffered(INSPECTS_AT_ONCE);
        looked.try_filter_map(|seen| async move { Ok(seen) }).try_collect().await
    }

    async fn written_bytes(&self, id: &str) -> Result<u64, EngineError> {
        check(id)?;
        let found = containers::written(&self.link, id).await?;
        found.ok_or_else(|| EngineError::NoSandbox { id: id.to_owned() })
    }

    async fn disk(&self) -> Result<Option<Disk>, EngineError> {
        disk::of(&self.link).await
    }

    async fn volume_made(&self, name: &str) -> Result<Option<String>, EngineError> {
        disk::volume_made(&self.link, name).await
    }

    async fn cpu_time(&self, id: &str) -> Result<Duration, EngineError> {
        self.cpu_used(id).await
    }

    async fn excluded(&self, id: &str) -> Result<Vec<Excluded>, EngineError> {
        let seen = self.raw_inspect("excluded", id).await?;
        let seen = seen.ok_or_else(|| EngineError::NoSandbox { id: id.to_owned() })?;
        let running = seen.state.as_ref().is_some_and(|state| state.running == Some(true));
        let processes = if running { containers::processes(&self.link, id).await? } else { None };
        Ok(observe::excluded(&seen, processes))
    }

    async fn commit(&self, spec: &CommitSpec) -> Result<Image, EngineError> {
        check(&spec.sandbox_id)?;
        snapshot::commit(&self.link, spec).await
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, EngineError> {
        if !is_reference(reference) {
            return Ok(None);
        }
        snapshot::inspect(&self.link, reference).await
    }

    async fn snapshot_images(&self, home: &str) -> Result<Vec<Image>, EngineError> {
        snapshot::images(&self.link, home).await
    }

    async fn sweep_image(&self, image_id: &str) -> Result<(), EngineError> {
        snapshot::sweep(&self.link, image_id).await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), EngineError> {
        snapshot::remove(&self.link, snapshot).await
    }

    async fn replace_snapshot(
        &self,
        snapshot: &SnapshotId,
        old: &str,
        image_id: &str,
    ) -> Result<(), EngineError> {
        snapshot::replace(&self.link, snapshot, old, image_id).await
    }

    async fn changes(&self, id: &str) -> Result<Vec<Change>, EngineError> {
        check(id)?;
        containers::changes(&self.link, id).await
    }

    async fn export(&self, id: &str) -> Result<Archive, EngineError> {
        check(id)?;
        archive::export(&self.link, id).await
    }

    async fn image_archive(&self, ids: &[&str]) -> Result<Archive, EngineError> {
        archive::images(&self.link, ids).await
    }

    async fn load_images(&self, archive: ArchiveSource) -> Result<(), EngineError> {
        archive::load(&self.link, archive).await
    }

    async fn pull(&self, reference: &str, progress: Progress) -> Result<Image, EngineError> {
        pull::pull(&self.link, reference, progress).await
    }

    async fn exec(&self, sandbox_id: &str, spec: &ExecSpec) -> Result<ExecIo, EngineError> {
        check(sandbox_id)?;
        exec::exec(&self.link, &self.execs, sandbox_id, spec).await
    }

    async fn exec_resize(&self, engine_id: &str, size: WindowSize) -> Result<(), EngineError> {
        exec::resize(&self.link, engine_id, size).await
    }

    async fn exec_state(&self, engine_id: &str) -> Result<ExecState, EngineError> {
        exec::state(&self.link, &self.execs, engine_id).await
    }

    async fn exec_signal(
        &self,
        sandbox_id: &str,
        exec_id: &str,
        user: Option<&str>,
        signal: i32,
    ) -> Result<(), EngineError> {
        check(sandbox_id)?;
        exec::signal(&self.link, &self.execs, sandbox_id, exec_id, user, signal).await
    }

    async fn sandbox_defaults(&self, sandbox_id: &str) -> Result<SandboxDefaults, EngineError> {
        check(sandbox_id)?;
        archive::sandbox_defaults(&self.link, sandbox_id).await
    }

    async fn stat_path(&self, sandbox_id: &str, path: &str) -> Result<Option<PathStat>, EngineError> {
        check(sandbox_id)?;
        archive::stat(&self.link, sandbox_id, path).await
    }

    async fn read_archive(&self, sandbox_id: &str, path: &str) -> Result<Archive, EngineError> {
        check(sandbox_id)?;
        archive::read(&self.link, sandbox_id, path).await
    }

    async fn write_archive(
        &self,
        sandbox_id: &str,
        directory: &str,
        archive: ArchiveSource,
    ) -> Result<(), EngineError> {
        check(sandbox_id)?;
        archive::write(&self.link, sandbox_id, directory, archive).await
    }

    async fn hints(&self) -> Result<BoxStream<'static, Result<Hint, EngineError>>, EngineError> {
        hints::follow(&self.link).await
    }
}
