//! Sandboxes on the real engine.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use abx::engine::{CreateSpec, Engine, EngineError, Hint, RunState, labels};
use abx::model::limits::rights;
use abx::model::session::{Excluded, Limits, Mount, Network, Port, Profile, Secret};
use futures_util::StreamExt;

use crate::support::engine::{TestHome, command, docker, run};

macro_rules! home {
    ($home:ident) => {
        let Some($home) = TestHome::new().await else { return };
    };
}
pub(super) use home;

/// One field of `docker inspect`.
pub(super) fn field(id: &str, field: &str) -> String {
    docker(&["inspect", "-f", &format!("{{{{json {field}}}}}"), id])
}

#[tokio::test]
async fn every_verb_may_run_twice() {
    home!(home);
    let engine = &home.engine;
    let spec = home.spec("twice");
    let made = engine.create(&spec).await.expect("created");
    assert_eq!((made.state, made.name.as_str()), (RunState::Created, spec.sandbox.as_str()));
    assert_eq!(engine.create(&spec).await.expect("found").id, made.id);
    let id = made.id.as_str();
    let state = async || engine.inspect(id).await.expect("looks").expect("there").state;
    for _ in 0..2 {
        engine.start(id).await.expect("started");
        assert_eq!(state().await, RunState::Running);
    }
    for _ in 0..2 {
        engine.pause(id).await.expect("paused");
        assert_eq!(state().await, RunState::Paused);
    }
    for _ in 0..2 {
        engine.unpause(id).await.expect("thawed");
        assert_eq!(state().await, RunState::Running);
    }
    engine.pause(id).await.expect("paused");
    for _ in 0..2 {
        engine.stop(id, Duration::from_secs(10)).await.expect("stopped");
        assert_eq!(state().await, RunState::Exited);
    }
    let seen = engine.inspect(id).await.expect("looks").expect("there");
    assert_eq!((seen.exit_code, seen.oom_killed), (Some(143), false), "TERM ended it, within its grace");
    let newer = format!("{}-b", spec.sandbox);
    for _ in 0..2 {
        engine.rename(id, &newer).await.expect("renamed");
    }
    assert_eq!(engine.inspect(&newer).await.expect("looks").expect("there").id, id);
    for _ in 0..2 {
        engine.remove(id).await.expect("removed");
        assert_eq!(engine.inspect(id).await.expect("looks"), None);
    }
    engine.stop(id, Duration::ZERO).await.expect("gone is stopped");
    for refused in [engine.start(id).await, engine.pause(id).await, engine.rename(id, "x").await] {
        assert!(matches!(refused, Err(EngineError::NoSandbox { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_stopped_sandbox_cannot_be_paused_and_a_taken_name_not_be_used() {
    home!(home);
    let (one, two) = (home.spec("one"), home.spec("two"));
    let made = home.engine.create(&one).await.expect("created");
    let other = home.engine.create(&two).await.expect("created");
    let paused = home.engine.pause(&made.id).await;
    assert!(matches!(paused, Err(EngineError::Conflict { .. } | EngineError::Failed { .. })), "{paused:?}");
    let renamed = home.engine.rename(&other.id, &one.sandbox).await;
    assert!(matches!(renamed, Err(EngineError::Conflict { .. })), "{renamed:?}");
    // The name of a container that is not this session's.
    let mut thief = home.spec("one");
    thief.session.id = abx::model::id::SessionId::new("someone-else");
    let stolen = home.engine.create(&thief).await;
    assert!(matches!(stolen, Err(EngineError::Conflict { .. })), "{stolen:?}");
}

#[tokio::test]
async fn labels_rebuild_the_row_and_no_value_of_the_environment_is_anywhere() {
    home!(home);
    let mut spec = home.spec("labels");
    spec.session.spec.env = [("TOKEN".to_owned(), Secret::new("hunter2"))].into();
    spec.session.metadata = [("k".to_owned(), "a=b,\"c\"\n".to_owned())].into();
    spec.session.timeout_ms = Some(5_000);
    let made = home.run(&spec).await;
    let all = home.engine.list(&home.home).await.expect("lists");
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].labels, labels::session(&spec));
    let row = labels::rebuild(&all[0]).expect("a session");
    assert_eq!((row.id, row.name, row.metadata), (spec.session.id, spec.session.name, spec.session.metadata));
    assert_eq!(row.timeout_ms, Some(5_000));
    assert!(!docker(&["inspect", &made.id]).contains("hunter2"));
    assert!(home.engine.list("/another/home").await.expect("lists").is_empty());
}

#[tokio::test]
async fn a_list_agrees_with_inspect_in_every_state() {
    home!(home);
    let mut specs = Vec::new();
    for (at, name) in ["created", "running", "paused", "stopped", "killed"].iter().enumerate() {
        let mut spec = home.spec(name);
        spec.session.id = abx::model::id::SessionId::new(format!("{}-{at}", spec.session.id));
        spec.session.spec.ports = vec![port(80, None)];
        specs.push(spec);
    }
    for (at, spec) in specs.iter().enumerate() {
        let id = home.engine.create(spec).await.expect("created").id;
        if at > 0 {
            home.engine.start(&id).await.expect("started");
        }
        match at {
            2 => home.engine.pause(&id).await.expect("paused"),
            3 => home.engine.stop(&id, Duration::from_secs(10)).await.expect("stopped"),
            4 => {
                docker(&["kill", &id]);
            }
            _ => {}
        }
    }
    let all = home.engine.list(&home.home).await.expect("lists");
    assert_eq!(all.len(), specs.len());
    for listed in all {
        let seen = home.engine.inspect(&listed.id).await.expect("looks").expect("there");
        assert_eq!(seen.finished_at_ms.is_some(), seen.state == RunState::Exited);
        let seen_alone = abx::engine::Observed {
            finished_at_ms: seen.finished_at_ms,
            pid: seen.pid,
            env: seen.env.clone(),
            directory: seen.directory.clone(),
            ..listed
        };
        assert_eq!(seen.pid.is_some(), matches!(seen.state, RunState::Running | RunState::Paused));
        assert_eq!(seen_alone, seen);
    }
}

#[tokio::test]
async fn mounts_with_odd_names_hold_what_they_should() {
    home!(home);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut spec = home.spec("mounts");
    let names = ["a:b", "with space", "数据-é", "com,ma", "quo\"te'", "eq=ro", "new\nline", "back\\slash"];
    for (at, name) in names.iter().enumerate() {
        let source = dir.path().join(name);
        std::fs::create_dir(&source).expect("create");
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o777)).expect("open it");
        std::fs::write(source.join("file"), name).expect("write");
        let target = if at == 0 { format!("/m/{at}") } else { format!("/m/{at} {name}") };
        let mount = Mount { source: source.to_str().expect("text").to_owned(), target, read_only: at == 1 };
        if at == 0 { spec.session.spec.workspace = Some(mount) } else { spec.session.spec.mounts.push(mount) }
    }
    let volume = format!("abx-test-volume-{}", std::process::id());
    let mount = Mount { source: volume.clone(), target: "/vol".to_owned(), read_only: false };
    spec.session.spec.mounts.push(mount);
    let id = home.run(&spec).await.id;
    for (at, mount) in spec.session.spec.workspace.iter().chain(&spec.session.spec.mounts).enumerate() {
        let Some(name) = names.get(at) else { continue };
        let ran = run(&home.engine, &id, &command(&["cat", &format!("{}/file", mount.target)])).await;
        assert_eq!(String::from_utf8_lossy(&ran.stdout), *name);
        let ran = run(&home.engine, &id, &command(&["touch", &format!("{}/new", mount.target)])).await;
        assert_eq!(ran.state == abx::engine::ExecState::Exited(0), !mount.read_only, "{name}");
    }
    let ran = run(&home.engine, &id, &command(&["pwd"])).await;
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "/m/0", "commands start in the workspace");
    let excluded = home.engine.excluded(&id).await.expect("tells");
    assert_eq!(excluded.iter().filter(|e| e.kind == "bind").count(), names.len());
    assert!(excluded.contains(&Excluded::new("volume", "/vol")));
    assert!(
        !excluded.iter().any(|e| e.kind == "process"),
        "our own programs are not the user's: {excluded:?}"
    );
    home.engine.remove(&id).await.expect("removed");
    assert_eq!(
        docker(&["volume", "ls", "-q", "--filter", &format!("name={volume}")]),
        volume,
        "named ones stay"
    );
    docker(&["volume", "rm", &volume]);
}

#[tokio::test]
async fn a_mount_without_source_leaves_no_container() {
    home!(home);
    let mut spec = home.spec("missing");
    let mount = Mount { source: "/nosuch/dir".to_owned(), target: "/m".to_owned(), read_only: false };
    spec.session.spec.mounts.push(mount);
    let refused = home.engine.create(&spec).await;
    assert!(matches!(refused, Err(EngineError::Failed { .. })), "{refused:?}");
    assert!(home.engine.list(&home.home).await.expect("lists").is_empty());
}

#[tokio::test]
async fn running_programs_are_named_without_their_arguments() {
    home!(home);
    let id = home.run(&home.spec("programs")).await.id;
    let mut io =
        home.engine.exec(&id, &command(&["sh", "-c", "echo x; sleep 77; true"])).await.expect("starts");
    io.output.next().await.expect("output").expect("output");
    let excluded = home.engine.excluded(&id).await.expect("tells");
    assert!(excluded.iter().any(|e| e.kind == "process" && e.target == "sh"), "{excluded:?}");
    assert!(!excluded.iter().any(|e| e.target.contains("77")), "{excluded:?}");
}

fn port(container: u16, host: Option<u16>) -> Port {
    Port { container, host, fixed: host.is_some(), protocol: "tcp".to_owned() }
}

#[tokio::test]
async fn ports_are_on_loopback_and_a_taken_one_is_refused() {
    home!(home);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let fixed = free.local_addr().expect("an address").port();
    drop(free);
    let mut spec = home.spec("ports");
    spec.session.spec.ports = vec![port(80, None), port(81, Some(fixed))];
    let id = home.run(&spec).await.id;
    let seen = home.engine.inspect(&id).await.expect("looks").expect("there").ports;
    assert_eq!((seen[0].container, seen[0].fixed), (80, false));
    assert!(seen[0].host.is_some_and(|host| host > 0));
    assert_eq!(seen[1], port(81, Some(fixed)));
    assert!(!field(&id, ".NetworkSettings.Ports").contains("0.0.0.0"));
    let mut other = home.spec("taken");
    other.session.id = abx::model::id::SessionId::new(format!("{}-2", other.session.id));
    other.session.spec.ports = vec![port(80, Some(fixed))];
    let other = home.engine.create(&other).await.expect("created");
    let refused = home.engine.start(&other.id).await;
    assert!(matches!(refused, Err(EngineError::Failed { .. })), "{refused:?}");
}

#[tokio::test]
async fn limits_rights_and_network_hold() {
    home!(home);
    let mut spec = home.spec("limits");
    spec.rights = rights(Profile::Restrictive);
    spec.session.spec.network = Network::None;
    spec.session.spec.limits = Limits { cpu_millis: Some(500), memory_bytes: Some(64 << 20), pids: Some(50) };
    let id = home.run(&spec).await.id;
    for (path, want) in [
        (".HostConfig.NanoCpus", "500000000"),
        (".HostConfig.Memory", "67108864"),
        (".HostConfig.PidsLimit", "50"),
        (".HostConfig.NetworkMode", "\"none\""),
        (".HostConfig.CapDrop", "[\"ALL\"]"),
        (".HostConfig.SecurityOpt", "[\"no-new-privileges\"]"),
        (".HostConfig.Init", "true"),
        (".HostConfig.Binds", "null"),
        (".Config.OpenStdin", "false"),
        (".HostConfig.RestartPolicy.Name", "\"no\""),
    ] {
        assert_eq!(field(&id, path), want, "{path}");
    }
    let ran =
        run(&home.engine, &id, &command(&["sh", "-c", "ls /sys/class/net; grep NoNewPrivs /proc/1/status"]))
            .await;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(text.starts_with("lo\n") && text.trim_end().ends_with('1'), "{text}");
}

#[tokio::test]
async fn an_image_that_is_not_there_is_told_apart() {
    home!(home);
    for image in
        ["abx-test-nosuch:1", "sha256:0000000000000000000000000000000000000000000000000000000000000000"]
    {
        let spec = CreateSpec { image: image.to_owned(), ..home.spec("noimage") };
        let refused = home.engine.create(&spec).await;
        assert!(matches!(refused, Err(EngineError::NoImage { .. })), "{refused:?}");
        assert_eq!(home.engine.image(image).await.expect("looks"), None);
    }
    for reference in ["localhost:1/abx-test/nosuch", "UPPER/case", "not a name", "../x"] {
        let refused = home.engine.pull(reference, Box::new(|_| {})).await;
        assert!(matches!(refused, Err(EngineError::NoImage { .. })), "{reference}: {refused:?}");
    }
}

#[tokio::test]
async fn hints_tell_of_what_others_do() {
    home!(home);
    let id = home.run(&home.spec("hints")).await.id;
    let mut hints = home.engine.hints().await.expect("follows");
    docker(&["kill", &id]);
    loop {
        let hint = hints.next().await.expect("goes on").expect("a hint");
        if hint == Hint::Sandbox(id.clone()) {
            break;
        }
    }
    docker(&["rm", &id]);
    while hints.next().await.expect("goes on").expect("a hint") != Hint::Sandbox(id.clone()) {}
}

#[tokio::test]
async fn the_engine_tells_what_it_is() {
    home!(home);
    let about = home.engine.about().await.expect("tells");
    assert!(about.address.starts_with("unix://") || about.address.starts_with("tcp://"), "{about:?}");
    assert!(about.clock_skew_ms.abs() < 60_000 && !about.version.is_empty(), "{about:?}");
    assert!(about.api_version.starts_with("1."), "{about:?}");
}
