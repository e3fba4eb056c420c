//! Whole texts of tables and details.

use super::*;
use crate::proto::types::{Excluded, Limits, Network, Port, Profile, Reason, Status, Workspace};

/// A running session of this name.
pub(crate) fn session(name: &str) -> Session {
    Session {
        id: "0190".to_owned(),
        name: name.to_owned(),
        sandbox: format!("session-{name}"),
        sandbox_id: Some("cafe".to_owned()),
        engine: "docker".to_owned(),
        agent: "claude".to_owned(),
        template: "base".to_owned(),
        image: Some("debian:stable-slim".to_owned()),
        image_id: None,
        runtime: Some("init".to_owned()),
        status: Status::Running,
        operation: None,
        reason: None,
        created_at: "2026-02-01T09:00:00.000Z".to_owned(),
        last_active: "2026-02-01T10:00:00.000Z".to_owned(),
        last_connected: None,
        expires_at: None,
        timeout_ms: None,
        idle_ms: None,
        keep: None,
        idle_action: None,
        on_boot: None,
        idle_since: None,
        idle_at: None,
        busy: Vec::new(),
        exec_count: 5,
        oom_events: 0,
        attention: None,
        attention_note: None,
        attention_at: None,
        snapshot: None,
        snapshots: 0,
        workspace: None,
        mounts: Vec::new(),
        ports: Vec::new(),
        limits: Limits::default(),
        network: Network::Bridge,
        profile: Profile::Moderate,
        env: Default::default(),
        metadata: Default::default(),
        revision: 3,
        warnings: Vec::new(),
    }
}

fn now() -> Timestamp {
    "2026-02-01T11:14:30Z".parse().expect("a time")
}

/// The table, from the answer as the daemon writes it.
fn listed(list: &[Session]) -> String {
    let answer = serde_json::to_string(list).expect("it encodes");
    let lines: Vec<Listed<'_>> = serde_json::from_str(&answer).expect("each has what a line shows");
    sessions(&lines, now())
}

#[test]
fn the_list_is_the_older_command_lines_to_the_letter() {
    let mut saved = session("bugfix-123");
    saved.agent = "gemini".to_owned();
    saved.status = Status::Saved;
    saved.created_at = "2026-01-31T09:00:00.000Z".to_owned();
    saved.exec_count = 12;
    let want = "NAME                 AGENT      STATUS     DURATION      EXECS\n\
                feature-x            claude     running    2h 14m            5\n\
                bugfix-123           gemini     saved      1d               12";
    assert_eq!(listed(&[session("feature-x"), saved]), want);
}

#[test]
fn an_empty_list_says_so() {
    assert_eq!(listed(&[]), "No sessions found.");
    assert_eq!(snapshots(&[]), "No snapshots found.");
}

#[test]
fn wide_long_and_hostile_names_keep_the_columns() {
    let mut busy = session("数据-会议");
    busy.operation = Some("stop".to_owned());
    let mut long = session("a-name-of-twenty-4-chars");
    long.agent = "a-long-label".to_owned();
    let hostile = session("x\u{1b}[2J");
    let want = "NAME                     AGENT        STATUS     DURATION      EXECS\n\
                数据-会议                claude       running    2h 14m            5\n\
                a-name-of-twenty-4-chars a-long-label running    2h 14m            5\n\
                x\\u{1b}[2J               claude       running    2h 14m            5";
    assert_eq!(listed(&[busy, long, hostile]), want);
}

#[test]
fn durations_have_one_unit_but_for_hours() {
    for (seconds, want) in [
        (0, "0s"),
        (45, "45s"),
        (59, "59s"),
        (60, "1m"),
        (12 * 60 + 59, "12m"),
        (3_599, "59m"),
        (3_600, "1h 0m"),
        (2 * 3_600 + 14 * 60, "2h 14m"),
        (86_399, "23h 59m"),
        (86_400, "1d"),
        (3 * 86_400 + 5, "3d"),
    ] {
        assert_eq!(short(seconds), want, "{seconds}");
    }
    assert_eq!(duration_since("2026-02-01T11:14:31Z", now()), "0s");
    assert_eq!(duration_since("soon", now()), "?");
}

#[test]
fn details_are_aligned_and_leave_out_what_is_absent() {
    let mut full = session("x");
    full.status = Status::Stopped;
    full.reason = Some(Reason::Timeout);
    full.operation = Some("resume".to_owned());
    full.timeout_ms = Some(5_400_000);
    full.snapshot = Some("x-20260201".to_owned());
    full.snapshots = 2;
    full.workspace =
        Some(Workspace { source: "/src".to_owned(), target: "/workspace".to_owned(), read_only: true });
    full.ports = vec![Port { container: 80, host: Some(8080), protocol: "tcp".to_owned() }];
    full.limits.memory_bytes = Some(2 << 30);
    full.env.insert("KEY".to_owned(), "***".to_owned());
    full.metadata.insert("owner".to_owned(), "a\nb".to_owned());
    let want = "name:        x\n\
                sandbox:     session-x\n\
                status:      stopped (timeout), resume under way\n\
                agent:       claude\n\
                template:    base\n\
                engine:      docker\n\
                runtime:     init\n\
                image:       debian:stable-slim\n\
                container:   cafe\n\
                created:     2026-02-01T09:00:00.000Z (2h 14m ago)\n\
                last active: 2026-02-01T10:00:00.000Z\n\
                timeout:     1h 30m\n\
                execs:       5\n\
                snapshots:   2 (newest: x-20260201)\n\
                workspace:   /src -> /workspace (read-only)\n\
                port:        127.0.0.1:8080 -> 80/tcp\n\
                memory:      2.0 GiB\n\
                network:     bridge\n\
                profile:     moderate\n\
                env:         KEY=***\n\
                meta:        owner=a\\nb\n\
                id:          0190";
    assert_eq!(details(&full, now()), want);
}

#[test]
fn snapshots_have_their_columns() {
    let snapshot = Snapshot {
        name: "x-20260201".to_owned(),
        session: "x".to_owned(),
        image_id: "sha256:1".to_owned(),
        created_at: "2026-02-01T09:00:00.123Z".to_owned(),
        creator: None,
        note: Some("before the rewrite".to_owned()),
        parent: None,
        size_bytes: 90_000_000,
        own_bytes: Some(80_000_000),
        excluded: Vec::new(),
    };
    let bare = Snapshot { note: None, own_bytes: None, ..snapshot.clone() };
    let want = "NAME                         SESSION              CREATED                   SIZE NOTE\n\
         x-20260201                   x                    2026-02-01T09:00:00Z  76.2 MiB before the rewrite\n\
         x-20260201                   x                    2026-02-01T09:00:00Z         -";
    assert_eq!(snapshots(&[snapshot.clone(), bare]), want);

    let lacks = |kind: &str, target: &str| Excluded { kind: kind.to_owned(), target: target.to_owned() };
    let full =
        Snapshot { excluded: vec![lacks("bind", "/workspace"), lacks("process", "no\nde")], ..snapshot };
    let wide = wide_snapshots(std::slice::from_ref(&full));
    assert!(
        wide.lines().next().is_some_and(|title| title.ends_with("NOTE                 NOT IN IT")),
        "{wide}"
    );
    assert!(wide.ends_with("before the rewrite   bind /workspace, process no\\nde"), "{wide}");
}
