//! Tables as released versions wrote them: each must open with every row intact, whatever the format is by then.
//!
//! A fixture is a dump of a table that the version of its name made. It never changes.

mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use abx::model::id::{SessionId, SessionName, SnapshotId, Timestamp};
use abx::model::idle::IdleAction;
use abx::model::session::{
    EngineKind, Excluded, External, Limits, Mount, Network, Operation, Port, Profile, Reason, Runtime,
    Secret, Session, Snapshot, SnapshotState, Spec, Status,
};
use abx::store::Store;

#[tokio::test]
async fn the_first_format_opens_with_every_row_intact() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("sessions.db");
    build(&path, include_str!("v1.sql"));
    for _ in 0..2 {
        let opened = Store::open(&path).expect("open");
        assert_eq!((opened.set_aside, opened.notices), (None, Vec::new()));
        let store = opened.store;
        let sessions: Vec<Session> = store.sessions().iter().map(|s| Session::clone(s)).collect();
        assert_eq!(sessions, [external(), working(), fresh()]);
        let snapshots: Vec<Snapshot> = store.snapshots(None).iter().map(|s| Snapshot::clone(s)).collect();
        assert_eq!(snapshots, [kept(), second(), first()]);
        assert_eq!(store.write(|tx| Ok(tx.meta("fixture"))).await.expect("meta").as_deref(), Some("v1"));
        store.close().await;
    }
}

fn build(path: &Path, dump: &str) {
    let conn = rusqlite::Connection::open(path).expect("create");
    conn.execute_batch(dump).expect("the dump");
}

/// A session with everything in it.
fn working() -> Session {
    Session {
        id: SessionId::new("019c1a2b-0000-7000-8000-000000000002"),
        name: SessionName::parse("数据 会议").expect("a good name"),
        sandbox: "session-_____-00000002".to_owned(),
        sandbox_id: Some("9f".repeat(32)),
        sandbox_engine: None,
        engine: EngineKind::Docker,
        agent: "gemini".to_owned(),
        template: "python".to_owned(),
        image: Some("debian:stable-slim".to_owned()),
        image_id: Some(format!("sha256:{}", "ab".repeat(32))),
        runtime: Runtime::Engine,
        status: Status::Saved,
        operation: Some(Operation::SaveRunning),
        reason: Some(Reason::OomKilled),
        created_at: Timestamp(1_769_904_000_123),
        last_active: Timestamp(1_769_904_100_000),
        last_connected: Some(Timestamp(1_769_904_050_000)),
        expires_at: Some(Timestamp(1_769_911_200_000)),
        timeout_ms: Some(7_200_000),
        idle_ms: Some(1_800_000),
        keep: None,
        idle_action: IdleAction::Stop,
        on_boot: None,
        exec_count: 12,
        oom_events: 1,
        attention: None,
        main_over: false,
        snapshot: Some("feature-x-20260201-2".to_owned()),
        snapshots: 2,
        spec: Spec {
            workspace: Some(Mount {
                source: "/home/dev/project".to_owned(),
                target: "/workspace".to_owned(),
                read_only: false,
            }),
            mounts: vec![
                Mount { source: "cache".to_owned(), target: "/root/.cache".to_owned(), read_only: false },
                Mount { source: "/opt/data".to_owned(), target: "/data".to_owned(), read_only: true },
            ],
            ports: vec![
                Port { container: 8080, host: Some(18080), fixed: true, protocol: "tcp".to_owned() },
                Port { container: 53, host: None, fixed: false, protocol: "udp".to_owned() },
            ],
            limits: Limits { cpu_millis: Some(1500), memory_bytes: Some(2 << 30), pids: Some(512) },
            network: Network::None,
            profile: Profile::Restrictive,
            user: Some("dev".to_owned()),
            env: BTreeMap::from([
                ("API_KEY".to_owned(), Secret::new("s3cret'\"\n=")),
                ("EMPTY".to_owned(), Secret::new("")),
            ]),
        },
        metadata: BTreeMap::from([
            ("colour".to_owned(), "green".to_owned()),
            ("ключ".to_owned(), "значение".to_owned()),
        ]),
        external: None,
        revision: 17,
    }
}

/// A session as it is while it is being made.
fn fresh() -> Session {
    Session {
        id: SessionId::new("019c1a2b-0000-7000-8000-000000000001"),
        name: SessionName::parse("bugfix-123").expect("a good name"),
        sandbox: "session-bugfix-123".to_owned(),
        sandbox_id: None,
        agent: "claude".to_owned(),
        template: "base".to_owned(),
        image_id: None,
        runtime: Runtime::Engine,
        status: Status::Starting,
        operation: Some(Operation::Start),
        reason: None,
        created_at: Timestamp(1_769_900_000_000),
        last_active: Timestamp(1_769_900_000_000),
        last_connected: None,
        expires_at: None,
        timeout_ms: None,
        idle_ms: None,
        idle_action: IdleAction::Stop,
        on_boot: None,
        exec_count: 0,
        oom_events: 0,
        attention: None,
        main_over: false,
        snapshot: None,
        snapshots: 0,
        spec: Spec::default(),
        metadata: BTreeMap::new(),
        revision: 1,
        ..working()
    }
}

/// A row of another program.
fn external() -> Session {
    Session {
        id: SessionId::new("019c1a2b-0000-7000-8000-000000000003"),
        name: SessionName::parse("notebook").expect("a good name"),
        sandbox: "sb-51".to_owned(),
        engine: EngineKind::External,
        image: None,
        status: Status::Unknown,
        operation: None,
        created_at: Timestamp(1_769_990_000_000),
        external: Some(External {
            origin: "agent-sandbox".to_owned(),
            status: Some("active".to_owned()),
            extra: Secret::new("{\"envdUrl\":\"http://x\"}"),
        }),
        revision: 2,
        ..fresh()
    }
}

fn first() -> Snapshot {
    Snapshot {
        id: SnapshotId::new("019c1a2c-0000-7000-8000-000000000001"),
        name: "feature-x-20260201".to_owned(),
        session: Some(working().id),
        session_name: "feature-x".to_owned(),
        image_id: format!("sha256:{}", "01".repeat(32)),
        created_at: Timestamp(1_769_905_000_000),
        creator: None,
        note: None,
        parent: None,
        size_bytes: 81_234_567,
        own_bytes: None,
        excluded: Vec::new(),
        state: SnapshotState::Ready,
    }
}

fn second() -> Snapshot {
    let excluded = |kind: &str, target: &str| Excluded::new(kind, target);
    Snapshot {
        id: SnapshotId::new("019c1a2c-0000-7000-8000-000000000002"),
        name: "feature-x-20260201-2".to_owned(),
        created_at: Timestamp(1_769_906_000_000),
        note: Some("before the rewrite".to_owned()),
        parent: Some("feature-x-20260201".to_owned()),
        excluded: vec![excluded("bind", "/workspace"), excluded("process", "node")],
        ..first()
    }
}

/// A snapshot that outlived its session, half-way through its removal.
fn kept() -> Snapshot {
    Snapshot {
        id: SnapshotId::new("019c1a2c-0000-7000-8000-000000000003"),
        name: "old-20260131".to_owned(),
        session: None,
        session_name: "old".to_owned(),
        created_at: Timestamp(1_769_907_000_000),
        state: SnapshotState::Deleting,
        ..first()
    }
}
