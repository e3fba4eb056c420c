//! The connection: found when it is needed, kept while it answers, looked for anew when it breaks.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::api::{self, Docker};
use crate::engine::EngineError;
use crate::engine::address::{self, Address, Candidate, Settings};
use crate::engine::hijack;
use crate::fault;

/// How long a candidate may take to say its version.
pub(super) const PROBE: Duration = Duration::from_secs(3);
/// Calls that only look or flip a state.
pub(super) const ORDINARY: Duration = Duration::from_secs(30);
/// Create, start, remove, and what stop takes beyond its grace: engines under load take tens of seconds.
pub(super) const SLOW: Duration = Duration::from_secs(120);
/// An image of tens of gigabytes on a slow disk.
pub(super) const IMAGE: Duration = Duration::from_secs(30 * 60);
/// Between two looks whether an engine that works at something long answers at all.
const ALIVE: Duration = Duration::from_secs(5);

/// The library's own deadline, in seconds. Ours are shorter; it must never be the one that fires.
const NO_DEADLINE_S: u64 = 365 * 24 * 3600;

/// The oldest API that abx works with (Engine 19.03): the first with everything that `create` sends.
const OLDEST_API: Api = Api { major: 1, minor: 40 };
/// The newest API that abx asks for; newer engines still speak it.
const NEWEST_API: Api = Api { major: 1, minor: 47 };

/// What podman calls itself.
const PODMAN: &str = "Podman Engine";

/// A version of the engine's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Api {
    pub(super) major: usize,
    pub(super) minor: usize,
}

/// Where an engine answered, and what was agreed on.
pub(super) struct Client {
    pub(super) docker: Docker,
    pub(super) candidate: Candidate,
    pub(super) api: Api,
    pub(super) version: String,
    /// The major version of podman, if that is what answers.
    pub(super) podman: Option<u32>,
    /// CPUs of the engine's machine, once asked for.
    pub(super) cpus: OnceCell<u64>,
    /// The directory of its data, once asked for; none where that is not this machine's.
    pub(super) root: OnceCell<Option<PathBuf>>,
}

/// The one client, if there is one.
///
/// The first engine that answers stays the one for good, wherever it was found: while it is away no other may take its
/// place, or every sandbox would seem to be gone.
pub(super) struct Link {
    settings: Settings,
    chosen: OnceLock<Candidate>,
    current: RwLock<Option<Arc<Client>>>,
    /// Held while looking for the engine. The last failure, and when it was known.
    search: tokio::sync::Mutex<Option<(Instant, EngineError)>>,
}

/// What a call is about, for the engine's 404.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    Sandbox(&'a str),
    Image(&'a str),
    Nothing,
}

impl Api {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl std::fmt::Display for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Client {
    /// A path with the version that was agreed on.
    pub(super) fn path(&self, path: &str) -> String {
        format!("/v{}{path}", self.api)
    }
}

impl Link {
    /// CPUs of the engine's machine.
    pub(super) async fn cpus(&self) -> Result<u64, EngineError> {
        self.call("create", ORDINARY, About::Nothing, |client| async move {
            let ask = async {
                let info = client.docker.info().await?;
                Ok(info
                    .ncpu
                    .and_then(|n| u64::try_from(n).ok())
                    .filter(|n| *n > 0)
                    .unwrap_or(u64::MAX / 1000))
            };
            client.cpus.get_or_try_init(|| ask).await.copied()
        })
        .await
    }

    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            chosen: OnceLock::new(),
            current: RwLock::new(None),
            search: tokio::sync::Mutex::new(None),
        }
    }

    /// The client; looks for the engine if there is none.
    pub(super) async fn client(&self) -> Result<Arc<Client>, EngineError> {
        if let Some(client) = self.known() {
            return Ok(client);
        }
        let entered = Instant::now();
        let mut last = self.search.lock().await;
        if let Some(client) = self.known() {
            return Ok(client);
        }
        // Those who waited for a search that failed share its answer: else each would wait for its own in turn.
        if let Some((at, error)) = last.as_ref()
            && *at >= entered
        {
            return Err(error.clone());
        }
        match self.search().await {
            Ok(client) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&client));
                *last = None;
                Ok(client)
            }
            Err(error) => {
                *last = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Forgets this client, so that the next call looks anew.
    pub(super) fn forget(&self, client: &Arc<Client>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|known| Arc::ptr_eq(known, client)) {
            *current = None;
        }
    }

    /// Makes one call with a deadline, and tells its failure in abx's words. A broken connection drops the client.
    pub(super) async fn call<T, F>(
        &self,
        call: &'static str,
        deadline: Duration,
        about: About<'_>,
        make: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, api::Error>>,
    {
        let client = self.client().await?;
        let made = within(call, deadline, make(Arc::clone(&client))).await?;
        made.map_err(|error| self.explain(&client, call, about, error))
    }

    /// As [`Link::call`], for what may take long: an engine that meanwhile leaves a mere ping without an answer is frozen,
    /// and nobody waits for the deadline then.
    pub(super) async fn call_alive<T, F>(
        &self,
        call: &'static str,
        deadline: Duration,
        about: About<'_>,
        make: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, api::Error>>,
    {
        let client = self.client().await?;
        let begun = Instant::now();
        let frozen = async {
            loop {
                tokio::time::sleep(ALIVE).await;
                // A connection that breaks is the call's to tell.
                if tokio::time::timeout(ORDINARY, client.docker.ping()).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            done = self.call(call, deadline, about, make) => done,
            () = frozen => {
                Err(EngineError::Timeout { call, after: Duration::from_secs(begun.elapsed().as_secs()) })
            }
        }
    }

    /// Tells a failure in abx's words.
    pub(super) fn explain(
        &self,
        client: &Arc<Client>,
        call: &'static str,
        about: About<'_>,
        error: api::Error,
    ) -> EngineError {
        match error {
            api::Error::DockerResponseServerError { status_code, message } => {
                refused(call, about, status_code, message)
            }
            api::Error::DockerStreamError { error } => EngineError::Failed { call, text: error },
            error @ (api::Error::IOError { .. }
            | api::Error::HyperResponseError { .. }
            | api::Error::HyperLegacyError { .. }
            | api::Error::SocketNotFoundError(_)
            | api::Error::RequestTimeoutError) => self.broken(client, &hijack::chain(&error)),
            other => EngineError::Failed { call, text: hijack::chain(&other) },
        }
    }

    /// A connection that broke: the client is dropped.
    pub(super) fn broken(&self, client: &Arc<Client>, why: &str) -> EngineError {
        self.forget(client);
        let Candidate { address, source } = &client.candidate;
        EngineError::Unavailable { tried: vec![address::tried(address, source, &plain(why))] }
    }

    fn known(&self) -> Option<Arc<Client>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn search(&self) -> Result<Arc<Client>, EngineError> {
        let mut tried = Vec::new();
        let candidates = match self.chosen.get() {
            Some(chosen) => vec![chosen.clone()],
            None => address::candidates(&self.settings)?,
        };
        for candidate in candidates {
            match tokio::time::timeout(PROBE, probe(&candidate)).await {
                Ok(Ok(client)) => {
                    self.chosen.get_or_init(|| candidate);
                    return Ok(Arc::new(client));
                }
                Ok(Err(Probe::Version(error))) => return Err(error),
                Ok(Err(Probe::Silent(why))) => {
                    tried.push(address::tried(&candidate.address, &candidate.source, &why));
                }
                Err(_) => {
                    let why = format!("no answer within {} s", PROBE.as_secs());
                    tried.push(address::tried(&candidate.address, &candidate.source, &why));
                }
            }
        }
        Err(EngineError::Unavailable { tried })
    }
}

/// Waits for a part of a call, but no longer than this.
pub(super) async fn within<T>(
    call: &'static str,
    deadline: Duration,
    part: impl Future<Output = T>,
) -> Result<T, EngineError> {
    let after = fault::deadline(deadline);
    tokio::time::timeout(after, part).await.map_err(|_| EngineError::Timeout { call, after })
}

/// An answer that is no success, in abx's words.
pub(super) fn refused(call: &'static str, about: About<'_>, status: u16, text: String) -> EngineError {
    // Engines also say 404 of what a container needs: an image, a network.
    let of_container = text.is_empty() || text.to_ascii_lowercase().contains("no such container");
    match (status, about) {
        (404, About::Sandbox(id)) if of_container => EngineError::NoSandbox { id: id.to_owned() },
        (404, About::Image(reference)) => EngineError::NoImage { reference: reference.to_owned(), text },
        (409, _) => EngineError::Conflict { call, text },
        (500, _) if PODMAN_CONFLICTS.iter().any(|words| text.contains(words)) => {
            EngineError::Conflict { call, text }
        }
        _ => EngineError::Failed { call, text },
    }
}

/// What podman says with a 500 where Docker says 409.
const PODMAN_CONFLICTS: [&str; 2] = ["container state improper", "name is already in use"];

enum Probe {
    Silent(String),
    Version(EngineError),
}

async fn probe(candidate: &Candidate) -> Result<Client, Probe> {
    let silent = |error: api::Error| Probe::Silent(plain(&hijack::chain(&error)));
    let version = connect(&candidate.address, None).map_err(silent)?.version().await.map_err(silent)?;
    let text = version.api_version.unwrap_or_default();
    let theirs = Api::parse(&text).ok_or_else(|| Probe::Silent("it is not an engine".to_owned()))?;
    let least = version.min_api_version.as_deref().and_then(Api::parse).unwrap_or(OLDEST_API);
    if theirs < OLDEST_API || least > NEWEST_API {
        let ours = format!("{OLDEST_API} to {NEWEST_API}");
        return Err(Probe::Version(EngineError::Version { engine: format!("{least} to {theirs}"), ours }));
    }
    let api = theirs.min(NEWEST_API);
    let components = version.components.unwrap_or_default();
    let podman = components.into_iter().find(|part| part.name == PODMAN);
    let major = |text: &str| text.split('.').next()?.parse().ok();
    Ok(Client {
        docker: connect(&candidate.address, Some(api)).map_err(silent)?,
        candidate: candidate.clone(),
        api,
        version: version.version.unwrap_or_default(),
        podman: podman.map(|part| major(&part.version).unwrap_or(u32::MAX)),
        cpus: OnceCell::new(),
        root: OnceCell::new(),
    })
}

/// A client whose requests go through our own connections and carry the version: the library leaves it out.
fn connect(address: &Address, api: Option<Api>) -> Result<Docker, api::Error> {
    let address = Arc::new(address.clone());
    let transport = move |mut request: api::Request| {
        let address = Arc::clone(&address);
        async move {
            if let Some(api) = api {
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                *request.uri_mut() = format!("/v{api}{path}").parse()?;
            }
            hijack::send(&address, request).await.map_err(|err| api::Error::IOError { err })
        }
    };
    Docker::connect_with_custom_transport(
        transport,
        Some("http://engine"),
        NO_DEADLINE_S,
        api::API_DEFAULT_VERSION,
    )
}

/// The system's words without its number.
fn plain(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests;
