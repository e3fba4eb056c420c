//! A random walk: verbs of several clients, hands of others at the engine, and daemons that end, on a real engine, against
//! a pure model after each step. Where several act at once, the outcome must be that of one of the serial orders.
//!
//! A failure names its seed. `ABX_WALK_SEED` walks that way again, `ABX_WALK_TURNS` sets how far; a long walk is started
//! by hand, with `cargo test --all-features --test main docker::walk`, for nextest ends what takes minutes.

mod model;
mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::model::{Act, Answer, Hand, NAMES, Shown, State, serial};
use self::script::{Turn, script};
use crate::support::engine::{busybox_image, docker};
use crate::support::{Socket, World, until};

/// As many turns as take a minute on a small machine.
const TURNS: u64 = 150;

/// As many clients as ever act at once.
const CLIENTS: usize = 3;

/// What anybody can look at, by name: the session, and the length of the timeline.
type View = BTreeMap<&'static str, (Option<Shown>, Option<usize>)>;

/// A walk under way.
struct Walk {
    world: World,
    clients: Vec<Socket>,
    /// What all may be like. More than one where several acted at once and it cannot be told yet who was first.
    states: Vec<State>,
    told: String,
}

#[test]
fn whatever_is_done_in_whatever_order_sessions_are_what_the_model_says() {
    let Some(world) = World::new() else { return };
    let number =
        |name, default| abx::paths::variable(name).map_or(default, |text| text.parse().expect("a number"));
    let (seed, turns) = (number("ABX_WALK_SEED", 1), number("ABX_WALK_TURNS", TURNS));
    let mut walk = Walk::new(world, format!("ABX_WALK_SEED={seed}\n"));
    for turn in script(seed, usize::try_from(turns).expect("a size")) {
        walk.take(&turn);
    }
    walk.end();
}

impl Walk {
    fn new(world: World, told: String) -> Self {
        let clients = connect(&world);
        Self { world, clients, states: vec![State::default()], told }
    }

    /// Lets the turn happen, and checks what came of it.
    fn take(&mut self, turn: &Turn) {
        let answers = match turn[..] {
            [Act::Outside { name, hand }] => vec![self.touch(name, hand)],
            [Act::Restart { orderly }] => vec![self.restart(orderly)],
            _ => self.ask(turn),
        };
        let acts: Vec<_> = turn.iter().copied().zip(answers).collect();
        let _ = writeln!(self.told, "{acts:?}");
        let next = serial(&self.states, &acts);
        assert!(!next.is_empty(), "no order gives these answers\n{}from {:#?}", self.told, self.states);
        // What others did is seen in a while, what a client was told of is there.
        if let [Act::Outside { .. }] = turn[..] {
            until(&format!("this to be seen:\n{}", self.told), || {
                let seen = self.look()?;
                next.iter().any(|state| view(state) == seen).then_some(())
            });
        }
        let seen = self.look();
        let seen = seen.unwrap_or_else(|| panic!("{}the list says another thing than the row", self.told));
        self.states = next.iter().filter(|state| view(state) == seen).cloned().collect();
        assert!(
            !self.states.is_empty(),
            "{}no order leads to this: {seen:#?}\nbut to {:#?}",
            self.told,
            next.iter().map(view).collect::<Vec<_>>()
        );
        self.explain_containers();
    }

    /// Every client asks for its act at once.
    fn ask(&mut self, turn: &Turn) -> Vec<Answer> {
        let asked: Vec<_> = turn.iter().map(|act| request(*act, &self.timeline(*act))).collect();
        thread::scope(|scope| {
            let asking: Vec<_> = asked
                .into_iter()
                .zip(&mut self.clients)
                .map(|((method, params), client)| {
                    scope.spawn(move || answer(&client.request(1, method, params).line()))
                })
                .collect();
            asking.into_iter().map(|asking| asking.join().expect("an answer")).collect()
        })
    }

    /// Names of the snapshots from which an act picks one, oldest first.
    fn timeline(&self, act: Act) -> Vec<String> {
        let (Act::BackTo { name, .. } | Act::ForkFrom { name, .. } | Act::DeleteSnapshot { name, .. }) = act
        else {
            return Vec::new();
        };
        let listed = get(&self.world, "snapshot.list", name);
        let listed = listed.iter().flat_map(|all| all.as_array().expect("an array"));
        let mut names: Vec<_> = listed.map(|s| s["name"].as_str().expect("a name").to_owned()).collect();
        names.reverse();
        names
    }

    fn touch(&self, name: &str, hand: Hand) -> Answer {
        let Some(row) = get(&self.world, "session.get", name) else { return Answer::Done };
        let status = row["status"].as_str().expect("a word");
        let args = match (hand, status) {
            (Hand::Kill, "running") => &["kill"][..],
            (Hand::Pause, "running") => &["pause"],
            (Hand::Unpause, "paused") => &["unpause"],
            (Hand::Remove, _) => &["rm", "-f"],
            _ => return Answer::Done,
        };
        if let Some(id) = row["sandbox_id"].as_str() {
            docker(&[args, &[id]].concat());
        }
        Answer::Done
    }

    fn restart(&mut self, orderly: bool) -> Answer {
        if orderly {
            self.world.daemon().signal(Signal::SIGTERM);
            assert!(self.world.daemon().wait().success(), "{}the daemon failed at its end", self.told);
        }
        self.world.restart(None);
        self.clients = connect(&self.world);
        Answer::Done
    }

    /// What anybody can look at; none where the list and a look at each do not say the same, as while it changes.
    fn look(&self) -> Option<View> {
        let listed = self.world.call("session.list", json!({}));
        let mut rest: Vec<&Value> = listed.as_array().expect("an array").iter().collect();
        let mut view = View::new();
        for name in NAMES {
            let row = get(&self.world, "session.get", name);
            let at = rest.iter().position(|listed| listed["name"] == name);
            let in_list = at.map(|at| rest.remove(at));
            if in_list.map(shown) != row.as_ref().map(shown) {
                return None;
            }
            let timeline = get(&self.world, "snapshot.list", name);
            let length = timeline.map(|all| all.as_array().expect("an array").len());
            view.insert(name, (row.as_ref().map(shown), length));
        }
        assert!(rest.is_empty(), "{}these are nobody's: {rest:?}", self.told);
        Some(view)
    }

    /// Every container is a session's, and in the state that the session is said to be in.
    fn explain_containers(&self) {
        let listed = self.world.call("session.list", json!({}));
        let rows = listed.as_array().expect("an array");
        let containers = self.world.containers();
        for (id, state) in &containers {
            let row = rows.iter().find(|row| row["sandbox_id"] == **id);
            let status = row.and_then(|row| row["status"].as_str());
            let fits = match state.as_str() {
                "running" | "paused" => status == Some(state),
                _ => matches!(status, Some("stopped" | "saved")),
            };
            assert!(fits, "{}container {id} is {state}, and its session {row:#?}", self.told);
        }
        let with = rows.iter().filter(|row| row["sandbox_id"].is_string()).count();
        assert_eq!(with, containers.len(), "{}a container is gone: {rows:#?}", self.told);
    }

    /// Every file is what it was left as; and once all is deleted, nothing of it is left anywhere.
    fn end(mut self) {
        for name in NAMES {
            self.take(&vec![Act::Read(name)]);
        }
        for name in NAMES {
            self.take(&vec![Act::Delete { name, keep_snapshots: false }]);
        }
        let kept = self.world.call("snapshot.list", json!({}));
        let kept: Vec<_> = kept.as_array().expect("an array").iter().map(|s| s["name"].clone()).collect();
        if !kept.is_empty() {
            self.world.call("snapshot.delete", json!({"snapshots": kept}));
        }
        assert_eq!(self.world.containers(), [], "{}", self.told);
        assert!(self.world.images().is_empty(), "{}an image is left", self.told);
        assert_eq!(places(&self.world), [] as [PathBuf; 0], "{}these are left of sandboxes", self.told);
        self.world.daemon().signal(Signal::SIGTERM);
        assert!(self.world.daemon().wait().success());
        assert!(processes(&self.world).is_empty(), "{}{:?} are left", self.told, processes(&self.world));
    }
}

fn connect(world: &World) -> Vec<Socket> {
    (0..CLIENTS).map(|_| world.connect()).collect()
}

fn view(state: &State) -> View {
    NAMES.into_iter().map(|name| (name, (state.shown(name), state.timeline_length(name)))).collect()
}

/// The result of a look by name; none where nothing has it.
fn get(world: &World, method: &str, name: &str) -> Option<Value> {
    let answer = world.connect().request(1, method, json!({"name": name})).line();
    match answer["error"]["data"]["kind"].as_str() {
        None => Some(answer["result"].clone()),
        Some("session_not_found") => None,
        Some(kind) => panic!("{method} of {name}: {kind}"),
    }
}

fn shown(row: &Value) -> Shown {
    assert!(row["operation"].is_null(), "something is still under way: {row}");
    let word = |field: &str| row[field].as_str().map(str::to_owned);
    let number = |field: &str| row[field].as_u64().expect("a number");
    Shown {
        status: word("status").expect("a word"),
        reason: word("reason"),
        has_container: row["sandbox_id"].is_string(),
        snapshots: number("snapshots"),
        execs: number("exec_count"),
        label: row["metadata"]["label"].as_str().map_or(0, |text| text.parse().expect("a number")),
    }
}

/// The call that an act is. `timeline` has the names of the snapshots that it may pick.
fn request(act: Act, timeline: &[String]) -> (&'static str, Value) {
    let pick = |nth: usize| timeline.get(nth).map_or("none", String::as_str);
    let named = |name: &str| json!({"name": name});
    let run = |name: &str, script: String| json!({"session": name, "cmd": ["sh", "-c", script]});
    match act {
        Act::Start(name) => ("session.start", json!({"name": name, "image": busybox_image()})),
        Act::Stop(name) => ("session.stop", named(name)),
        Act::Save { name, noted, keep_running } => {
            let note = noted.then_some("a reason");
            ("session.save", json!({"name": name, "note": note, "keep_running": keep_running}))
        }
        Act::Resume(name) => ("session.resume", named(name)),
        Act::BackTo { name, nth, discard } => {
            ("session.resume", json!({"name": name, "snapshot": pick(nth), "discard": discard}))
        }
        Act::Delete { name, keep_snapshots } => {
            ("session.delete", json!({"name": name, "keep_snapshots": keep_snapshots}))
        }
        Act::Connect { name, resume } => ("session.connect", json!({"name": name, "resume": resume})),
        Act::Pause(name) => ("session.pause", named(name)),
        Act::Unpause(name) => ("session.unpause", named(name)),
        Act::Rename { name, to } => ("session.rename", json!({"name": name, "new_name": to})),
        Act::Fork { name, to } => ("session.fork", json!({"name": name, "new_name": to})),
        Act::ForkFrom { name, to, nth } => {
            ("session.fork", json!({"name": name, "new_name": to, "snapshot": pick(nth)}))
        }
        Act::Label { name, label } => {
            ("session.update", json!({"name": name, "metadata": {"label": label.to_string()}}))
        }
        Act::Write { name, files } => ("exec.run", run(name, format!("echo {files} >/root/file"))),
        Act::Read(name) => ("exec.run", run(name, "cat /root/file || echo 0".to_owned())),
        Act::DeleteSnapshot { nth, .. } => ("snapshot.delete", json!({"snapshots": [pick(nth)]})),
        Act::Outside { .. } | Act::Restart { .. } => unreachable!("nobody asks the daemon for these"),
    }
}

fn answer(line: &Value) -> Answer {
    if let Some(kind) = line["error"]["data"]["kind"].as_str() {
        return Answer::Refused(kind.to_owned());
    }
    let result = &line["result"];
    assert!(!result.is_null(), "{line}");
    assert!(result["exit_code"].is_null() || result["exit_code"] == 0, "{line}");
    match result["stdout"].as_str().filter(|said| !said.is_empty()) {
        Some(said) => Answer::Said(said.trim().parse().expect("a number")),
        None => Answer::Done,
    }
}

/// Directories through which the daemon talks with sandboxes. Beside them is the program that all of them run.
fn places(world: &World) -> Vec<PathBuf> {
    let all = std::fs::read_dir(world.home.root().join("run")).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Processes that were started for this home and still run.
fn processes(world: &World) -> Vec<String> {
    let home = format!("ABX_HOME={}", world.home.root().display());
    let of_home = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().into_string().ok()).filter(of_home).collect()
}
