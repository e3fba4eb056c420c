//! `abx start`.

use std::collections::BTreeMap;

use super::attach;
use super::daemon::{CLOCK_FIX, clock_text};
use super::session::started;
use crate::cli::args::AttachArgs;
use crate::cli::args_session::StartArgs;
use crate::cli::context::{Context, operation_id, understand};
use crate::cli::detach;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::relay::on_terminal;
use crate::cli::start_args::{environment, parse_volume, parse_workspace};
use crate::client::Client;
use crate::proto::methods::{DaemonInfo, Empty, SessionStart};
use crate::proto::sessions::StartParams;
use crate::proto::terminals::MAIN_TERMINAL;
use crate::proto::types::{IdleAction, Limits, Network, OnBoot, Profile};

/// What is said of a session in which abx-init does not run.
const WITHOUT_INIT: &str = "Without abx-init: the engine runs its commands, no terminal outlives its client, and no output \
                            is kept. To see why: abx daemon logs";

/// Starts a session, and opens a terminal in it where that was asked for.
pub(crate) fn run(context: &Context, args: StartArgs) -> Result<u8, Failure> {
    let attach = args.attach;
    if attach && !on_terminal() {
        return Err(Failure::usage("--attach needs a terminal on standard input and output"));
    }
    let params = params(args).map_err(Failure::usage)?;
    let mut client = context.connect()?;
    let raw = context.call_on::<SessionStart>(&mut client, &params)?;
    context.deliver::<SessionStart>(
        &raw,
        |s| clean(&s.name),
        |s| {
            // Only a session that was there already has ever been connected to.
            started(s, if s.last_connected.is_some() { "connected" } else { "started" })
        },
    )?;
    let session = understand::<SessionStart>(&raw)?;
    if session.runtime.as_deref() == Some("engine") {
        context.output.note(WITHOUT_INIT);
    }
    warn_of_clock(context, &mut client);
    if !attach {
        return Ok(0);
    }
    let name = session.name;
    let detach_keys = detach::DEFAULT.parse().map_err(Failure::usage)?;
    let args = AttachArgs {
        no_resume: false,
        name,
        terminal: MAIN_TERMINAL.to_owned(),
        agent: false,
        fresh: false,
        read_only: false,
        scrollback: 0,
        detach_keys,
        cmd: Vec::new(),
    };
    attach::run(context, args).map_err(Failure::for_exec)
}

/// Says where clocks in the new sandbox are off, which breaks what runs there in strange ways. Whatever keeps that from
/// being known is no failure of the start.
fn warn_of_clock(context: &Context, client: &mut Client) {
    let Ok(info) = client.call::<DaemonInfo>(&Empty {}) else { return };
    for why in info.engines.iter().filter_map(clock_text) {
        context.output.note(&format!("Warning: {}", clean(&why)));
        context.output.note(&format!("Hint: {CLOCK_FIX}"));
    }
}

/// The parameters that a command line asks for.
///
/// # Errors
/// What cannot be asked for, without the value of a variable.
pub(crate) fn params(args: StartArgs) -> Result<StartParams, String> {
    let name = args.name.or(args.named).unwrap_or_default();
    let mut metadata = BTreeMap::new();
    metadata.extend(args.meta);
    Ok(StartParams {
        name,
        agent: args.agent,
        template: args.template,
        image: args.image,
        engine: args.engine,
        timeout_ms: args.timeout,
        idle_ms: args.idle,
        keep: args.keep,
        idle_action: args.idle_action.as_deref().map(IdleAction::from_word),
        on_boot: args.on_boot.as_deref().map(OnBoot::from_word),
        env: environment(&args.env_file, &args.env)?,
        metadata,
        workspace: args.workspace.as_deref().map(parse_workspace).transpose()?,
        mounts: args.volume.iter().map(|v| parse_volume(v)).collect::<Result<_, _>>()?,
        ports: args.ports,
        limits: Limits { cpus: args.cpus, memory_bytes: args.memory, pids: args.pids },
        network: args.network.map(|word| match word.as_str() {
            "bridge" => Network::Bridge,
            "none" => Network::None,
            _ => Network::Other(word),
        }),
        profile: args.profile.map(|word| match word.as_str() {
            "permissive" => Profile::Permissive,
            "moderate" => Profile::Moderate,
            "restrictive" => Profile::Restrictive,
            _ => Profile::Other(word),
        }),
        reuse: args.reuse,
        op: operation_id(),
    })
}
