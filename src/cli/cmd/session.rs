//! The session verbs, but for `start`.

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::start;
use crate::cli::args_session::{ListArgs, SaveArgs, SessionCommand, UpdateArgs};
use crate::cli::context::{Context, can_ask, operation_id, refused, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::table;
use crate::client::Asked;
use crate::proto::methods::{
    Method, SessionConnect, SessionDelete, SessionFork, SessionGet, SessionList, SessionPause, SessionRename,
    SessionResume, SessionSave, SessionStop, SessionUnpause, SessionUpdate,
};
use crate::proto::sessions::{
    ConnectParams, DeleteParams, ForkParams, ListParams, NameParams, RenameParams, ResumeParams, SaveParams,
    SaveResult, StopParams, UpdateParams,
};
use crate::proto::types::{IdleAction, OnBoot, Session, Status};

/// Runs a session verb.
pub(crate) fn run(context: &Context, verb: SessionCommand) -> Result<u8, Failure> {
    match verb {
        SessionCommand::Start(args) => return start::run(context, *args),
        SessionCommand::List(args) => list(context, args)?,
        SessionCommand::Get { name } => {
            let raw = context.call::<SessionGet>(&NameParams { name })?;
            let now = Timestamp::now();
            context.deliver::<SessionGet>(&raw, |s| clean(&s.name), |s| table::details(s, now))?;
        }
        SessionCommand::Stop { name, grace } => {
            return each(context, name, |name| {
                let params = StopParams { name, grace_ms: grace };
                verb_on::<SessionStop>(context, &params, stopped)
            });
        }
        SessionCommand::Save(args) => save(context, args)?,
        SessionCommand::Resume { name, snapshot, discard, yes } => {
            let discards = if discard { agree_to_discard(context, &name, yes)? } else { None };
            let params = ResumeParams { name, snapshot, discard, op: operation_id() };
            show::<SessionResume>(context, &params, |s| {
                format!("{}\n{}", done(s, "resumed"), attach_line(s))
            })?;
            if let Some(lost) = discards {
                context.output.note(&format!("Discarded {lost}."));
            }
        }
        SessionCommand::Delete { name, keep_snapshots, forget, yes } => {
            return each(context, name, |name| {
                delete(context, DeleteParams { name, keep_snapshots, forget }, yes)
            });
        }
        SessionCommand::Connect { name, no_resume } => {
            let params = ConnectParams { name, resume: refused(no_resume), op: operation_id() };
            show::<SessionConnect>(context, &params, |s| done(s, "connected"))?;
        }
        SessionCommand::Pause { name } => {
            show::<SessionPause>(context, &NameParams { name }, |s| done(s, "paused"))?;
        }
        SessionCommand::Unpause { name } => {
            show::<SessionUnpause>(context, &NameParams { name }, |s| done(s, "unpaused"))?;
        }
        SessionCommand::Rename { name, new } => {
            let text = format!("Session '{}' renamed to", clean(&name));
            let params = RenameParams { name, new_name: new };
            show::<SessionRename>(context, &params, |s| format!("{text} '{}'.", clean(&s.name)))?;
        }
        SessionCommand::Fork { name, new, snapshot } => {
            let params = ForkParams { name, new_name: new, snapshot, op: operation_id() };
            show::<SessionFork>(context, &params, |s| started(s, "started"))?;
        }
        SessionCommand::Update(args) => {
            let params = update_params(args).map_err(Failure::usage)?;
            show::<SessionUpdate>(context, &params, |s| done(s, "updated"))?;
        }
    }
    Ok(0)
}

/// The block that a new session is announced with. The older command line's, to the letter.
pub(crate) fn started(session: &Session, verb: &str) -> String {
    let sandbox = clean(&session.sandbox);
    format!("{}\n  Sandbox: {sandbox}\n{}", done(session, verb), attach_line(session))
}

fn attach_line(session: &Session) -> String {
    format!("Attach with: abx attach {}", quoted(&session.sandbox))
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '@' | '%' | '+' | ',' | '/')
    };
    let word = clean(word);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A session that was saved, or has nothing left to stop, is left as it was, and is said to be that.
fn stopped(session: &Session) -> String {
    match session.status {
        Status::Stopped => done(session, "stopped"),
        ref status => done(session, &format!("is {}", clean(status.as_str()))),
    }
}

fn done(session: &Session, verb: &str) -> String {
    format!("Session '{}' {verb}.", clean(&session.name))
}

fn show<M: Method<Result = Session>>(
    context: &Context,
    params: &M::Params,
    text: impl FnOnce(&Session) -> String,
) -> Result<(), Failure> {
    let raw = context.call::<M>(params)?;
    context.deliver::<M>(&raw, |s| clean(&s.name), text)?;
    for warning in understand::<M>(&raw)?.warnings {
        context.output.note(&format!("Warning: {}", clean(&warning)));
    }
    Ok(())
}

/// As [`show`], but under `--json` the document is the caller's to print.
fn verb_on<M: Method<Result = Session>>(
    context: &Context,
    params: &M::Params,
    text: impl FnOnce(&Session) -> String,
) -> Result<Box<RawValue>, Failure> {
    let raw = context.call::<M>(params)?;
    if !context.output.json {
        context.deliver::<M>(&raw, |s| clean(&s.name), text)?;
    }
    Ok(raw)
}

/// Does something to each name, going on after a failure; exits with the first failure's code. Under `--json` one name
/// gives its document, several an array of theirs, with `{"error": ..}` in the place of those that failed.
fn each(
    context: &Context,
    names: Vec<String>,
    mut act: impl FnMut(String) -> Result<Box<RawValue>, Failure>,
) -> Result<u8, Failure> {
    if let [_] = names.as_slice() {
        let name = names.into_iter().next().unwrap_or_default();
        let raw = act(name)?;
        if context.output.json {
            context.output.data(raw.get());
        }
        return Ok(0);
    }
    let mut exit = 0;
    let mut documents = Vec::new();
    for name in names {
        match act(name) {
            Ok(raw) => documents.push(raw.get().to_owned()),
            Err(failure) => {
                documents.push(format!("{{\"error\":{}}}", failure.document()));
                if !context.output.json {
                    context.output.failure(&failure);
                }
                exit = if exit == 0 { failure.exit } else { exit };
            }
        }
    }
    if context.output.json {
        context.output.data(&format!("[{}]", documents.join(",")));
    }
    Ok(exit)
}

fn list(context: &Context, args: ListArgs) -> Result<(), Failure> {
    let status = args.status.into_iter().map(status).collect();
    let params = ListParams { status, agent: args.agent };
    if context.output.json {
        context.output.data(context.call::<SessionList>(&params)?.get());
        return Ok(());
    }
    let asked = Asked::new::<SessionList>(&params)?;
    let mut client = context.connect_asking(&asked)?;
    let list: Vec<table::Listed<'_>> = client.answer_part(&asked)?;
    if context.output.quiet {
        list.iter().for_each(|session| context.output.data(&clean(&session.name)));
    } else {
        let table = if args.output.is_some() { table::wide } else { table::sessions };
        context.output.data(&table(&list, Timestamp::now()));
    }
    Ok(())
}

fn status(word: String) -> Status {
    [
        Status::Starting,
        Status::Running,
        Status::Paused,
        Status::Stopped,
        Status::Saved,
        Status::Lost,
        Status::Unknown,
    ]
    .into_iter()
    .find(|status| status.as_str() == word)
    .unwrap_or(Status::Other(word))
}

fn save(context: &Context, args: SaveArgs) -> Result<(), Failure> {
    let SaveArgs { name, snapshot, note, keep_running, timeout } = args;
    let op = operation_id();
    let params = SaveParams { name, snapshot, note, keep_running, timeout_ms: timeout, op };
    let raw = context.call::<SessionSave>(&params)?;
    context.deliver::<SessionSave>(
        &raw,
        |saved| clean(&saved.snapshot.name),
        |SaveResult { session, snapshot, .. }| {
            format!("Session '{}' saved (snapshot: {})", clean(&session.name), clean(&snapshot.name))
        },
    )?;
    let SaveResult { snapshot, pruned, .. } = understand::<SessionSave>(&raw)?;
    if !pruned.is_empty() {
        let names: Vec<String> = pruned.iter().map(|name| clean(name)).collect();
        context.output.note(&format!("Snapshots deleted: {}", names.join(", ")));
    }
    if !snapshot.excluded.is_empty() {
        context.output.note(&format!("Not in the snapshot: {}", table::excluded(&snapshot)));
    }
    Ok(())
}

fn delete(context: &Context, asked: DeleteParams, yes: bool) -> Result<Box<RawValue>, Failure> {
    if !yes && can_ask() {
        let session = context.connect()?.call::<SessionGet>(&NameParams { name: asked.name.clone() })?;
        if !context.agrees(&question(&session, &asked)) {
            return Err(Failure::refused(format!("session '{}' was not deleted", asked.name)));
        }
    }
    let raw = context.call::<SessionDelete>(&asked)?;
    if context.output.json {
        return Ok(raw);
    }
    let result = understand::<SessionDelete>(&raw)?;
    let deleted = clean(&result.deleted);
    if context.output.quiet {
        context.output.data(&deleted);
    } else {
        context.output.data(&format!("Session '{deleted}' deleted."));
    }
    if !result.snapshots.is_empty() {
        let names: Vec<String> = result.snapshots.iter().map(|n| clean(n)).collect();
        context.output.note(&format!("Snapshots deleted: {}", names.join(", ")));
    }
    Ok(raw)
}

/// Asks for what going back loses where somebody can answer, and gives its name where nobody is asked: that is said once it
/// was done. A session that runs is not gone back in, and nothing is said of it here.
fn agree_to_discard(context: &Context, name: &str, yes: bool) -> Result<Option<String>, Failure> {
    let session = context.connect()?.call::<SessionGet>(&NameParams { name: name.to_owned() })?;
    let lost = discarded(&session);
    if yes || !can_ask() {
        return Ok(Some(lost));
    }
    if session.status != Status::Running
        && !context.agrees(&format!("Discard {lost}? Nothing brings it back. [y/N] "))
    {
        return Err(Failure::refused("nothing was discarded"));
    }
    Ok(None)
}

fn discarded(session: &Session) -> String {
    let name = clean(&session.name);
    match &session.snapshot {
        Some(newest) => {
            format!("all files of session '{name}' that no snapshot holds (the newest: {})", clean(newest))
        }
        None => format!("all files of session '{name}', which has no snapshot"),
    }
}

/// Names what a delete loses.
fn question(session: &Session, asked: &DeleteParams) -> String {
    let name = clean(&session.name);
    if session.engine == "external" {
        return format!("Delete session '{name}' from the table? [y/N] ");
    }
    let count = match session.snapshots {
        1 => "1 snapshot".to_owned(),
        n => format!("{n} snapshots"),
    };
    if asked.forget {
        let all = if session.snapshots == 0 { "its container" } else { "its container and its snapshots" };
        return format!(
            "Delete session '{name}' and {all}? What is on another engine stays there, and is only forgotten. [y/N] "
        );
    }
    match (session.snapshots, asked.keep_snapshots) {
        (0, _) => format!("Delete session '{name}' and its container? It has no snapshot. [y/N] "),
        (_, false) => format!("Delete session '{name}', its container and {count}? [y/N] "),
        (_, true) => format!("Delete session '{name}' and its container, and keep {count}? [y/N] "),
    }
}

fn update_params(args: UpdateArgs) -> Result<UpdateParams, String> {
    let mut params = UpdateParams {
        name: args.name,
        timeout_ms: args.timeout,
        idle_ms: args.idle,
        keep: args.keep,
        idle_action: args.idle_action.as_deref().map(IdleAction::from_word),
        on_boot: args.on_boot.as_deref().map(OnBoot::from_word),
        ..UpdateParams::default()
    };
    for pair in args.meta {
        let (key, value) =
            pair.split_once('=').map_or((pair.as_str(), None), |(k, v)| (k, Some(v.to_owned())));
        if key.is_empty() {
            return Err("--meta needs a name: K=V, or K to remove it".to_owned());
        }
        params.metadata.insert(key.to_owned(), value);
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table::tests::session;

    #[test]
    fn the_question_names_what_is_lost() {
        let asked = |keep_snapshots, forget| DeleteParams { name: "x".to_owned(), keep_snapshots, forget };
        let mut session = session("x");
        session.snapshots = 2;
        assert_eq!(
            question(&session, &asked(false, true)),
            "Delete session 'x' and its container and its snapshots? What is on another engine stays there, and is only \
             forgotten. [y/N] "
        );
        assert_eq!(
            question(&session, &asked(false, false)),
            "Delete session 'x', its container and 2 snapshots? [y/N] "
        );
        assert_eq!(
            question(&session, &asked(true, false)),
            "Delete session 'x' and its container, and keep 2 snapshots? [y/N] "
        );
        session.snapshots = 0;
        assert_eq!(
            question(&session, &asked(false, false)),
            "Delete session 'x' and its container? It has no snapshot. [y/N] "
        );
        session.engine = "external".to_owned();
        assert_eq!(question(&session, &asked(false, false)), "Delete session 'x' from the table? [y/N] ");
    }

    #[test]
    fn a_word_is_quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted("session-a.b_c-1:@%+,/"), "session-a.b_c-1:@%+,/");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's 数据"), "'it'\\''s 数据'");
    }

    #[test]
    fn an_update_sets_and_removes_labels() {
        let args = UpdateArgs {
            name: "x".to_owned(),
            timeout: Some(0),
            idle: None,
            keep: None,
            idle_action: None,
            on_boot: None,
            meta: vec!["a=b=c".to_owned(), "gone".to_owned()],
        };
        let params = update_params(args).expect("valid");
        assert_eq!(params.timeout_ms, Some(0));
        assert_eq!(params.metadata["a"].as_deref(), Some("b=c"));
        assert_eq!(params.metadata["gone"], None);
    }
}
