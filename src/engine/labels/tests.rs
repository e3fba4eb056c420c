//! Rows and labels, there and back; and what other tests create.

use super::*;
use crate::engine::RunState;
use crate::model::session::{Limits, Mount, Secret};

const ID: &str = "01920000-0000-7000-8000-0000deadbeef";

/// What a driver would ask for, with every field that has a label.
pub(in crate::engine) fn create_spec(name: &str) -> CreateSpec {
    let name = SessionName::parse(name).expect("good");
    let id = SessionId::new(ID);
    let mount = |source: &str, target: &str, read_only| Mount {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    let port = |container, host: Option<u16>| Port {
        container,
        host,
        fixed: host.is_some(),
        protocol: "tcp".to_owned(),
    };
    let session = Session {
        agent: "claude".to_owned(),
        template: "base".to_owned(),
        image: Some("base".to_owned()),
        status: Status::Stopped,
        timeout_ms: Some(600_000),
        keep: Some(3),
        spec: Spec {
            workspace: Some(mount("/home/me/we \"ird", "/work", false)),
            mounts: vec![mount("volume", "/v", true)],
            ports: vec![port(80, None), port(443, Some(8443))],
            limits: Limits { cpu_millis: Some(1500), memory_bytes: None, pids: Some(64) },
            network: Network::Bridge,
            profile: Profile::Restrictive,
            user: Some("dev".to_owned()),
            env: [("TOKEN".to_owned(), Secret::new("hunter2"))].into(),
        },
        metadata: [("k".to_owned(), "v,=\n".to_owned())].into(),
        ..Session::new(id, name, Timestamp(1_700_000_000_000))
    };
    CreateSpec {
        sandbox: session.sandbox.clone(),
        image: "base".to_owned(),
        rights: crate::model::limits::rights(session.spec.profile),
        home: "home".to_owned(),
        guest: None,
        session,
    }
}

pub(in crate::engine) fn commit_spec(sandbox_id: &str) -> CommitSpec {
    CommitSpec {
        sandbox_id: sandbox_id.to_owned(),
        snapshot: SnapshotId::new("01920000-0000-7000-8000-00000000cafe"),
        name: "a-20260201".to_owned(),
        session: SessionId::new(ID),
        session_name: "a".to_owned(),
        home: "home".to_owned(),
        note: None,
        creator: Some(By { client: "zed".to_owned(), pid: Some(7) }),
        parent: Some("a-20260131".to_owned()),
        excluded: Vec::new(),
        saves: false,
        patience: std::time::Duration::from_secs(60),
    }
}

fn observed(spec: &CreateSpec, name: &str) -> Observed {
    Observed {
        id: "c1".to_owned(),
        name: name.to_owned(),
        state: RunState::Exited,
        exit_code: Some(0),
        finished_at_ms: None,
        oom_killed: false,
        image_id: "sha256:1".to_owned(),
        labels: session(spec),
        ports: Vec::new(),
        mounts: spec.session.spec.workspace.iter().chain(&spec.session.spec.mounts).cloned().collect(),
        pid: None,
        env: Vec::new(),
        directory: None,
        limits: Limits::default(),
        networked: true,
    }
}

#[test]
fn a_row_comes_back_from_the_labels_but_for_its_environment() {
    let spec = create_spec("a");
    let got = rebuild(&observed(&spec, "session-a")).expect("a session");
    let mut want = spec.session;
    want.sandbox_id = Some("c1".to_owned());
    want.image_id = Some("sha256:1".to_owned());
    want.spec.env.clear();
    assert_eq!(got, want);
}

#[test]
fn a_renamed_container_gives_its_session_the_newer_name() {
    let spec = create_spec("a");
    let got = rebuild(&observed(&spec, "session-b")).expect("a session");
    assert_eq!((got.name.as_str(), got.sandbox.as_str()), ("b", "session-b"));
    let id = &spec.session.id;
    let taken = sandbox_name(&SessionName::parse("b-c").expect("a good name"), id, true);
    let got = rebuild(&observed(&spec, &taken)).expect("a session");
    assert_eq!(
        (got.name.as_str(), got.sandbox.as_str()),
        ("b-c", taken.as_str()),
        "its id is no part of its name"
    );
    let odd = create_spec("dev env");
    let got = rebuild(&observed(&odd, &odd.sandbox)).expect("a session");
    assert_eq!(got.name.as_str(), "dev env");
}

#[test]
fn no_value_of_the_environment_stands_in_a_label() {
    assert!(!format!("{:?}", session(&create_spec("a"))).contains("hunter2"));
}

#[test]
fn a_snapshots_image_rebuilds_both_rows_and_is_no_sandbox_of_the_home() {
    let spec = create_spec("a");
    let mut all = session(&spec);
    let base = Image { size_bytes: 3, ..Image::default() };
    all.extend(snapshot(&commit_spec("c1"), Some(&base), Some(7)));
    assert!(!format!("{all:?}").contains("/home/me"));
    assert_eq!(all[SESSION_HOME], "");
    let image = Image { id: "sha256:2".to_owned(), size_bytes: 5, layers: Vec::new(), labels: all };
    let row = rebuild_snapshot(&image).expect("a snapshot");
    assert_eq!((row.name.as_str(), row.session_name.as_str()), ("a-20260201", "a"));
    assert_eq!(row.creator, commit_spec("c1").creator);
    assert_eq!((row.parent.as_deref(), row.own_bytes), (Some("a-20260131"), Some(2)));
    assert_eq!(row.created_at, Timestamp(0x0192_0000_0000));
    assert_eq!(ended_at(&image), None, "its session was not saved to it");
    let bind = Excluded { mark: Some("fs:1".to_owned()), ..Excluded::new("bind", "/w") };
    let excluded = vec![bind, Excluded::new("process", "no\"de")];
    let saving = CommitSpec { saves: true, excluded: excluded.clone(), ..commit_spec("c1") };
    let saved = Image { labels: snapshot(&saving, Some(&base), Some(7)), ..image.clone() };
    assert_eq!(ended_at(&saved), Some(7));
    assert_eq!(rebuild_snapshot(&saved).expect("a snapshot").excluded, excluded);
    let saved = rebuild_from_snapshot(&image).expect("a session");
    assert_eq!((saved.id, saved.status), (spec.session.id, Status::Saved));
}

#[test]
fn labels_that_someone_bent_rebuild_what_can_be_read() {
    let mut seen = observed(&create_spec("a"), "session-a");
    for key in [SESSION_METADATA, SESSION_PORTS, SESSION_LIMITS, SESSION_CREATED_AT] {
        seen.labels.insert(key.to_owned(), "{[torn".to_owned());
    }
    assert!(rebuild(&seen).is_some());
    seen.labels.insert(SESSION_NAME.to_owned(), "../evil".to_owned());
    assert!(rebuild(&seen).is_none());
}

#[test]
fn a_fixed_port_is_told_from_a_free_one() {
    let all = session(&create_spec("a"));
    assert!(is_fixed(&all, 443, "tcp"));
    assert!(!is_fixed(&all, 80, "tcp") && !is_fixed(&all, 443, "udp"));
}
