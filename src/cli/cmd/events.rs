//! `abx events` and `abx history`.

mod text;

use serde_json::value::{RawValue, to_raw_value};

use crate::cli::args_events::{EventsArgs, HistoryArgs};
use crate::cli::context::{Context, understand};
use crate::cli::failure::Failure;
use crate::client::{CallError, Client};
use crate::proto::events::{Event, EventListParams, PROGRESS, SubscribeParams};
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
    let session = params.session.clone();
    let mut client = context.connect()?;
    let raw = pages(context, &mut client, params)?;
    if let Some(name) = session
        && understand::<EventList>(&raw)?.is_empty()
    {
        let any =
            EventListParams { session: Some(name.clone()), limit: Some(1), ..EventListParams::default() };
        let kept = pages(context, &mut client, any)?;
        known(context, &mut client, &kept, name)?;
    }
    context.deliver::<EventList>(&raw, |all| numbers(all), |all| text::lines(all))?;
    Ok(0)
}

/// Shows what was done with one session.
pub(crate) fn history(context: &Context, args: HistoryArgs) -> Result<u8, Failure> {
    let params = EventListParams { session: Some(args.name.clone()), ..EventListParams::default() };
    let mut client = context.connect()?;
    let raw = pages(context, &mut client, params)?;
    known(context, &mut client, &raw, args.name)?;
    let most = args.tail.unwrap_or(usize::MAX);
    context.deliver::<EventList>(&raw, |all| numbers(all), |all| text::history(all, most))?;
    Ok(0)
}

/// Fails if there is no such session and its events, these, are none.
fn known(context: &Context, client: &mut Client, events: &RawValue, name: String) -> Result<(), Failure> {
    if understand::<EventList>(events)?.is_empty() {
        context.call_on::<SessionGet>(client, &NameParams { name })?;
    }
    Ok(())
}

/// What all answers have, as one.
fn pages(
    context: &Context,
    client: &mut Client,
    mut params: EventListParams,
) -> Result<Box<RawValue>, Failure> {
    let unreadable = |error| Failure::local("failed to read the events of abxd", &error);
    let mut all: Vec<Box<RawValue>> = Vec::new();
    loop {
        let raw = context.call_on::<EventList>(client, &params)?;
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
        params.since = after(params.since, &event);
        match event.kind.as_str() {
            "subscribed" => tell_missed(context, &event),
            "lagged" => {
                context.call_on::<EventSubscribe>(&mut client, &params)?;
            }
            _ if context.output.json => context.output.data(raw.get()),
            _ if context.output.quiet => context.output.data(&event.seq.to_string()),
            _ => context.output.data(&text::line(&event, &mut commands)),
        }
    }
}

/// Says where the stream begins after a hole; after `lagged`, too, the next subscription tells of it.
fn tell_missed(context: &Context, subscribed: &Event) {
    if let Some(missed @ 1..) = subscribed.data["missed"].as_u64() {
        context.output.note(&format!("abx: {missed} events are no longer kept"));
    }
}

/// What comes after an event begins after its number. A step of an operation overtakes events that are still to come, and
/// leaves that as it was.
fn after(since: Option<u64>, event: &Event) -> Option<u64> {
    if event.kind == PROGRESS { since } else { Some(event.seq) }
}

#[cfg(test)]
mod tests {
    use super::after;
    use crate::cli::tests::abx;
    use crate::client::fake::{Fake, HELLO, Script};
    use crate::proto::events::KINDS;

    fn event(seq: u64, kind: &str, data: &str) -> String {
        format!(
            r#"{{"seq":{seq},"at":"2026-02-01T10:00:00Z","kind":"{kind}","session":"x","revision":1,"data":{data}}}"#
        )
    }

    const NOBODY: &str =
        r#""error":{"code":2,"message":"no session is named 'nosuch'","data":{"kind":"session_not_found"}}"#;
    const NOTHING: &str = "\"result\":[]";

    #[test]
    fn a_session_that_is_neither_there_nor_in_what_is_kept_is_not_found() {
        let fake = Fake::answers(&[NOTHING, NOTHING, NOBODY]);
        let (exit, out, err) = abx(&fake, &["events", "nosuch"]);
        assert_eq!((exit, out.as_str()), (3, ""));
        assert!(err.starts_with("Error: no session is named 'nosuch'\n"), "{err}");
        // One that is gone is known by what is kept, even if nothing of it is of that kind.
        let kept = format!("\"result\":[{}]", event(4, "session.deleted", "{}"));
        let fake = Fake::answers(&[NOTHING, &kept, NOBODY]);
        let (exit, out, err) = abx(&fake, &["events", "gone", "--kind", "exec."]);
        assert_eq!((exit, out.as_str(), err.as_str()), (0, "No events found.\n", ""));
    }

    #[test]
    fn a_kind_that_there_is_not_is_wrong_usage_and_all_that_there_are_are_listed() {
        let parse =
            |kind: &str| crate::cli::args::parse(["abx", "events", "--kind", kind].map(Into::into)).map(drop);
        for kind in KINDS.iter().chain(&["session.", "exec."]) {
            parse(kind).unwrap_or_else(|error| panic!("{kind}: {error}"));
        }
        for kind in ["bogus", "session", "bogus.", "."] {
            let said = parse(kind).expect_err(kind).to_string();
            assert!(KINDS.iter().all(|kind| said.contains(kind)), "{said}");
        }
    }

    #[test]
    fn a_hole_in_what_is_followed_is_told_once_beside_the_events() {
        let tells = |event: String| {
            let event = event.replacen('{', r#"{"subscription":1,"#, 1);
            format!(r#"{{"jsonrpc":"2.0","method":"event","params":{event}}}"#) + "\n"
        };
        let answer = |then: &[String]| {
            let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"subscription":1}}"#.to_owned() + "\n";
            (answer + &then.concat()).into_bytes()
        };
        let first = answer(&[
            tells(event(7, "subscribed", r#"{"missed":0}"#)),
            tells(event(8, "session.created", "{}")),
            tells(event(8, "lagged", r#"{"missed":5}"#)),
        ]);
        let mut second = answer(&[
            tells(event(13, "subscribed", r#"{"missed":5}"#)),
            tells(event(14, "session.deleted", "{}")),
            // What this abx does not understand ends it.
            r#"{"jsonrpc":"2.0","method":"event","params":{}}"#.to_owned() + "\n",
        ]);
        second.push(0);
        let answers = vec![first, second];
        let fake = Fake::start(Script { hello: Some(HELLO.to_owned()), answers, raw: Vec::new() });
        let (exit, out, err) = abx(&fake, &["events", "--follow", "--since", "7", "-q"]);
        assert_eq!((exit != 0, out.as_str()), (true, "8\n14\n"), "{err}");
        assert_eq!(err.lines().next(), Some("abx: 5 events are no longer kept"), "{err}");
        assert_eq!(err.matches("no longer kept").count(), 1, "{err}");
        assert!(fake.requests()[1].contains(r#""since":8"#), "{:?}", fake.requests());
    }

    #[test]
    fn a_step_of_an_operation_is_no_place_to_go_on_from() {
        let read = |text: &str| serde_json::from_str(text).expect("an event");
        let since = after(Some(3), &read(&event(4, "session.created", "{}")));
        assert_eq!(since, Some(4));
        assert_eq!(after(since, &read(&event(9, "progress", "{}"))), Some(4));
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
