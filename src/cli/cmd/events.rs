//! `abx events` and `abx history`.

mod text;

use serde_json::value::{RawValue, to_raw_value};

use crate::cli::args_events::{EventsArgs, HistoryArgs};
use crate::cli::context::{Context, understand};
use crate::cli::failure::Failure;
use crate::client::CallError;
use crate::proto::events::{Event, EventListParams, SubscribeParams};
use crate::proto::methods::{EventList, EventSubscribe, SessionGet};
use crate::proto::sessions::NameParams;

/// Events that are shown where nobody says from which on.
const SHOWN: u64 = 100;

/// Shows what has happened, and with `--follow` what happens.
pub(crate) fn run(context: &Context, args: EventsArgs) -> Result<u8, Failure> {
    if args.follow {
        return follow(context, args);
    }
    let params = EventListParams {
        since: args.since.unwrap_or_default(),
        session: args.session,
        kinds: args.kinds,
        limit: args.since.is_none().then_some(SHOWN),
    };
    let raw = pages(context, params)?;
    context.deliver::<EventList>(&raw, |all| numbers(all), |all| text::lines(all))?;
    Ok(0)
}

/// Shows what was done with one session.
pub(crate) fn history(context: &Context, args: HistoryArgs) -> Result<u8, Failure> {
    let params = EventListParams { session: Some(args.name.clone()), ..EventListParams::default() };
    let raw = pages(context, params)?;
    if understand::<EventList>(&raw)?.is_empty() {
        // Says that there is no such session, if there is none.
        context.call::<SessionGet>(&NameParams { name: args.name.clone() })?;
    }
    let most = args.tail.unwrap_or(usize::MAX);
    context.deliver::<EventList>(&raw, |all| numbers(all), |all| text::history(all, most))?;
    Ok(0)
}

/// What all answers have, as one.
fn pages(context: &Context, mut params: EventListParams) -> Result<Box<RawValue>, Failure> {
    let unreadable = |error| Failure::local("failed to read the events of abxd", &error);
    let mut client = context.connect()?;
    let mut all: Vec<Box<RawValue>> = Vec::new();
    loop {
        let raw = context.call_on::<EventList>(&mut client, &params)?;
        let Some(last) = understand::<EventList>(&raw)?.last().map(|event| event.seq) else { break };
        all.extend(serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()).map_err(unreadable)?);
        // Those are the last of all.
        if params.limit.is_some() {
            break;
        }
        params.since = last;
    }
    to_raw_value(&all).map_err(unreadable)
}

fn numbers(events: &[Event]) -> String {
    events.iter().map(|event| event.seq.to_string()).collect::<Vec<_>>().join("\n")
}

/// Follows until this process is ended. A daemon that stops is waited for, and what happened meanwhile is shown.
fn follow(context: &Context, args: EventsArgs) -> Result<u8, Failure> {
    let mut client = context.connect()?;
    // It may have another name when the daemon is there again.
    let session = match args.session {
        Some(name) => {
            let raw = context.call_on::<SessionGet>(&mut client, &NameParams { name })?;
            Some(understand::<SessionGet>(&raw)?.id)
        }
        None => None,
    };
    let mut params = SubscribeParams { since: args.since, session, kinds: args.kinds };
    context.call_on::<EventSubscribe>(&mut client, &params)?;
    let mut commands = text::Commands::default();
    loop {
        let raw = match client.next_notification() {
            Ok(raw) => raw,
            Err(CallError::Gone { .. }) => {
                client = context.come_back(false)?;
                context.call_on::<EventSubscribe>(&mut client, &params)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let event: Event = serde_json::from_str(raw.get())
            .map_err(|error| Failure::local("failed to read an event of abxd", &error))?;
        // Whatever comes next begins after it.
        params.since = Some(event.seq);
        match event.kind.as_str() {
            "subscribed" => {}
            "lagged" => {
                context.call_on::<EventSubscribe>(&mut client, &params)?;
            }
            _ if context.output.json => context.output.data(raw.get()),
            _ if context.output.quiet => context.output.data(&event.seq.to_string()),
            _ => context.output.data(&text::line(&event, &mut commands)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::abx;
    use crate::client::fake::Fake;

    fn event(seq: u64, kind: &str, data: &str) -> String {
        format!(
            r#"{{"seq":{seq},"at":"2026-02-01T10:00:00Z","kind":"{kind}","session":"x","revision":1,"data":{data}}}"#
        )
    }

    #[test]
    fn a_history_is_read_to_its_end_and_an_end_has_the_words_of_its_start() {
        let events = [
            event(4, "exec.started", r#"{"exec":"e1","cmd":["make","test"],"detached":false}"#),
            event(7, "exec.ended", r#"{"exec":"e1","exit_code":0,"reason":null,"duration_ms":1500}"#),
            event(
                8,
                "exec.ended",
                r#"{"exec":"e2","exit_code":null,"reason":"its session was deleted","duration_ms":null}"#,
            ),
        ];
        let pages = [&events[..1], &events[1..], &[]].map(|page| format!("\"result\":[{}]", page.join(",")));
        let fake = Fake::answers(&[&pages[0], &pages[1], &pages[2]]);
        let (exit, out, err) = abx(&fake, &["history", "x"]);
        assert_eq!((exit, err.as_str()), (0, ""));
        let lines: Vec<&str> = out.lines().skip(1).collect();
        assert_eq!(lines.len(), 2, "{out}");
        assert!(lines[0].contains("make test: 0 after 1.5s"), "{out}");
        assert!(lines[1].contains("e2: its session was deleted"), "{out}");
        let asked: Vec<String> =
            fake.requests().into_iter().filter(|request| request.contains("event.list")).collect();
        assert_eq!(asked.len(), 3, "{asked:?}");
        for (request, since) in asked.iter().zip([0, 4, 8]) {
            assert!(request.contains(&format!("\"since\":{since}")), "{request}");
        }
    }
}
