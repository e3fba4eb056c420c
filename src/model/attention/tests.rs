use proptest::prelude::*;

use super::*;

fn exec(id: &str) -> ExecId {
    ExecId::new(id)
}

/// A session that is heard, second by second.
#[derive(Default)]
struct Watched {
    known: Option<Noted>,
    memory: Memory,
    now: Duration,
    changes: i64,
}

impl Watched {
    fn hears(&mut self, heard: &Heard) {
        if let Some(said) = hear(self.known.as_ref(), &mut self.memory, heard, self.now) {
            self.changes += 1;
            self.known = Some(said.at(Timestamp(self.changes)));
            self.memory.look_at(self.known.as_ref(), self.now);
        }
    }

    fn after(&mut self, seconds: u64, heard: &Heard) -> &mut Self {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.hears(&Heard::Time);
        }
        self.hears(heard);
        self
    }

    fn state(&self) -> Option<Attention> {
        self.known.as_ref().map(|known| known.state)
    }
}

fn output() -> Heard {
    Heard::Output(exec("main"))
}

fn typed() -> Heard {
    Heard::Typed(exec("main"))
}

fn says(state: Attention, source: Source, note: Option<&str>) -> Heard {
    let (note, exec) = (note.map(str::to_owned), Some(exec("main")));
    Heard::Said(Said { state, source, note, exec })
}

fn bell() -> Heard {
    says(Attention::Waiting, Source::Bell, None)
}

fn asks() -> Heard {
    says(Attention::Waiting, Source::Osc9, Some("which?"))
}

/// What is heard, each so many seconds after the one before.
type Story = Vec<(u64, Heard)>;

#[test]
fn each_story_ends_as_a_user_would_tell_it() {
    use Attention::{Done, Idle, Waiting, Working};
    let notify = |state| says(state, Source::Notify, None);
    let progress = |shown| Heard::Progress(exec("main"), shown);
    let on = |seconds: usize| vec![(1, output()); seconds];
    let stories: Vec<(&str, Story, Option<Attention>)> = vec![
        ("nothing was heard", vec![], None),
        ("it writes", vec![(0, output())], Some(Working)),
        ("it wrote a while ago", vec![(0, output()), (9, Heard::Time)], Some(Working)),
        ("it is quiet", vec![(0, output()), (10, Heard::Time)], Some(Idle)),
        ("it writes again", vec![(0, output()), (30, output())], Some(Working)),
        ("it rings", vec![(0, output()), (0, bell())], Some(Waiting)),
        ("it rang long ago", vec![(0, bell()), (9999, Heard::Time)], Some(Waiting)),
        ("it rings and draws its prompt", vec![(0, bell()), (0, output()), (1, output())], Some(Waiting)),
        ("it rings and goes on by itself", [vec![(0, bell())], on(12)].concat(), Some(Working)),
        (
            "it rings and blinks now and then",
            [vec![(0, bell())], vec![(5, output()); 9]].concat(),
            Some(Waiting),
        ),
        ("it asks and goes on to draw", [vec![(0, asks())], on(60)].concat(), Some(Waiting)),
        ("it asks and is answered", vec![(0, asks()), (60, typed()), (1, output())], Some(Working)),
        ("it asks, and a key is not enough", vec![(0, asks()), (60, typed())], Some(Waiting)),
        ("it was typed at before it asks", vec![(0, typed()), (5, asks()), (0, output())], Some(Waiting)),
        ("its shell rings for want of a word", vec![(0, output()), (3, typed()), (0, bell())], Some(Working)),
        ("it asks right after a key", vec![(0, typed()), (0, asks())], Some(Waiting)),
        ("it shows progress and is quiet", vec![(0, progress(true)), (600, Heard::Time)], Some(Working)),
        (
            "its progress is over",
            vec![(0, progress(true)), (60, progress(false)), (10, Heard::Time)],
            Some(Idle),
        ),
        ("it asks, and begins to work", vec![(0, asks()), (1, progress(true))], Some(Working)),
        (
            "it shows progress all along and asks",
            vec![(0, progress(true)), (1, asks()), (1, output())],
            Some(Waiting),
        ),
        ("it says that it works", vec![(0, notify(Working)), (600, Heard::Time)], Some(Working)),
        (
            "it says that it is idle, and draws",
            vec![(0, output()), (1, notify(Idle)), (0, output())],
            Some(Idle),
        ),
        ("it says so and goes on", [vec![(1, notify(Idle))], on(12)].concat(), Some(Working)),
        ("it says so and is typed at", vec![(1, notify(Idle)), (1, typed()), (0, output())], Some(Working)),
        ("it says that it is done", vec![(0, notify(Done)), (600, Heard::Time)], Some(Done)),
    ];
    for (story, heard, end) in stories {
        let mut watched = Watched::default();
        for (seconds, heard) in &heard {
            watched.after(*seconds, heard);
        }
        assert_eq!(watched.state(), end, "{story}");
    }
}

#[test]
fn what_another_program_writes_answers_nothing() {
    let mut watched = Watched::default();
    let other = |heard: fn(ExecId) -> Heard| heard(exec("other"));
    watched.after(0, &bell()).after(1, &other(Heard::Typed));
    for _ in 0..60 {
        watched.after(1, &other(Heard::Output));
    }
    assert_eq!(watched.state(), Some(Attention::Waiting));
}

#[test]
fn a_line_stays_until_another_comes_and_no_one_is_told_twice() {
    let mut watched = Watched::default();
    watched.after(0, &asks()).after(1, &asks());
    watched.after(1, &says(Attention::Waiting, Source::Notify, None)).after(5, &bell());
    let note = |watched: &Watched| watched.known.as_ref().and_then(|known| known.note.clone());
    assert_eq!((watched.changes, note(&watched).as_deref()), (1, Some("which?")));
    watched.after(1, &says(Attention::Waiting, Source::Osc777, Some("sure?")));
    assert_eq!((watched.changes, note(&watched).as_deref()), (2, Some("sure?")));
}

#[test]
fn the_end_of_a_command_counts_where_it_was_the_agents() {
    let known = |state| {
        let said = Said { state, source: Source::Notify, note: None, exec: Some(exec("a")) };
        said.at(Timestamp(1))
    };
    let (works, waits) = (known(Attention::Working), known(Attention::Waiting));
    assert!(ended(Some(&works), &exec("a"), false, None).is_some());
    assert!(ended(Some(&works), &exec("b"), false, None).is_none());
    assert!(ended(Some(&waits), &exec("a"), false, None).is_none(), "a hook ends after each thing it says");
    assert!(ended(Some(&waits), &exec("a"), true, None).is_some());
    let said = ended(Some(&known(Attention::Done)), &exec("b"), true, None).expect("it was on main");
    assert!(said.is_news(Some(&known(Attention::Done))), "that it has ended is more than that it says so");
    let said = ended(None, &exec("b"), true, Some("exit code 1".to_owned())).expect("it was on main");
    assert_eq!((said.state, said.note.as_deref()), (Attention::Done, Some("exit code 1")));
}

fn anything() -> impl Strategy<Value = Heard> {
    let any_exec = || prop_oneof![Just(exec("main")), Just(exec("other"))];
    let state = prop::sample::select(Attention::ALL);
    let source = prop::sample::select(&[Source::Osc9, Source::Osc99, Source::Osc777, Source::Notify][..]);
    let said = (state, source, prop::option::of("[a-c]"), prop::option::of(any_exec()));
    prop_oneof![
        4 => any_exec().prop_map(Heard::Output),
        2 => any_exec().prop_map(Heard::Typed),
        1 => Just(bell()),
        1 => said.prop_map(|(state, source, note, exec)| Heard::Said(Said { state, source, note, exec })),
        1 => (any_exec(), any::<bool>()).prop_map(|(exec, shown)| Heard::Progress(exec, shown)),
        2 => Just(Heard::Time),
    ]
}

proptest! {
    /// Whatever happens: a change is news, what asks in words waits until somebody types or says something else, and
    /// nobody is quiet before the time is over.
    #[test]
    fn the_rules_hold_in_any_order(all in prop::collection::vec((0_u64..15, anything()), 0..60)) {
        let mut watched = Watched::default();
        let mut written = Duration::ZERO;
        let mut answered = true;
        for (seconds, heard) in all {
            watched.after(seconds.saturating_sub(1), &Heard::Time);
            watched.now += Duration::from_secs(seconds.min(1));
            let before = watched.known.clone();
            watched.hears(&heard);
            let after = watched.known.clone();
            if matches!(heard, Heard::Output(_) | Heard::Progress(..)) {
                written = watched.now;
            }
            answered |= matches!(heard, Heard::Typed(_));
            if before == after {
                continue;
            }
            let after = after.expect("nothing makes it unknown");
            if let Some(before) = before {
                prop_assert!((before.state, &before.note, before.source) != (after.state, &after.note, after.source));
                let in_words = before.state == Attention::Waiting && before.source != Source::Bell;
                prop_assert!(!in_words || after.source != Source::Output || answered);
                prop_assert!(after.source != Source::Quiet || before.state == Attention::Working);
            }
            prop_assert!(after.source != Source::Quiet || watched.now >= written + QUIET);
            answered = false;
        }
    }
}
