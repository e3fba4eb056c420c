//! What happens on a walk: random acts, the same for the same seed.

use proptest::prelude::*;
use proptest::strategy::{Union, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::model::{Act, BAD_NAME, Hand, NAMES};

/// What happens at once: one act, or several of as many clients on one session.
pub(super) type Turn = Vec<Act>;

/// So many turns of this seed.
pub(super) fn script(seed: u64, turns: usize) -> Vec<Turn> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let all = prop::collection::vec(turn(), turns).new_tree(&mut runner);
    all.expect("no filter refuses anything").current()
}

fn turn() -> impl Strategy<Value = Turn> {
    let alone = prop_oneof![6 => names().prop_flat_map(atomic), 4 => names().prop_flat_map(lonely)];
    let together = names().prop_flat_map(|name| prop::collection::vec(atomic(name), 2..=3));
    prop_oneof![5 => alone.prop_map(|act| vec![act]), 2 => together]
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn new_names() -> impl Strategy<Value = &'static str> {
    prop_oneof![15 => names(), 1 => Just(BAD_NAME)]
}

/// Acts that happen before another on the same session or after it.
fn atomic(name: &'static str) -> impl Strategy<Value = Act> {
    Union::new_weighted(vec![
        (6, Just(Act::Start(name)).boxed()),
        (3, Just(Act::Stop(name)).boxed()),
        (4, any::<(bool, bool)>().prop_map(move |both| save(name, both)).boxed()),
        (3, Just(Act::Resume(name)).boxed()),
        (
            3,
            (0_usize..3, any::<bool>())
                .prop_map(move |(nth, discard)| Act::BackTo { name, nth, discard })
                .boxed(),
        ),
        (2, any::<bool>().prop_map(move |keep_snapshots| Act::Delete { name, keep_snapshots }).boxed()),
        (2, any::<bool>().prop_map(move |resume| Act::Connect { name, resume }).boxed()),
        (3, Just(Act::Pause(name)).boxed()),
        (2, Just(Act::Unpause(name)).boxed()),
        (2, new_names().prop_map(move |to| Act::Rename { name, to }).boxed()),
        (2, new_names().prop_map(move |to| Act::Fork { name, to }).boxed()),
        (1, (new_names(), 0_usize..3).prop_map(move |(to, nth)| Act::ForkFrom { name, to, nth }).boxed()),
        (2, (1_u64..1000).prop_map(move |label| Act::Label { name, label }).boxed()),
        (2, (0_usize..3).prop_map(move |nth| Act::DeleteSnapshot { name, nth }).boxed()),
    ])
}

/// Acts of which only the outcome on their own is certain: a command may be ended in its middle by a stop.
fn lonely(name: &'static str) -> impl Strategy<Value = Act> {
    let hands = prop::sample::select(vec![Hand::Kill, Hand::Pause, Hand::Unpause, Hand::Remove]);
    Union::new_weighted(vec![
        (6, (1_u64..1000).prop_map(move |files| Act::Write { name, files }).boxed()),
        (5, Just(Act::Read(name)).boxed()),
        (4, hands.prop_map(move |hand| Act::Outside { name, hand }).boxed()),
        (1, any::<bool>().prop_map(|orderly| Act::Restart { orderly }).boxed()),
    ])
}

fn save(name: &'static str, (noted, keep_running): (bool, bool)) -> Act {
    Act::Save { name, noted, keep_running }
}
