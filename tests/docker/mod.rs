//! Tests that need a container engine.

mod agents;
mod attention;
mod awake;
mod away;
mod boot;
mod caller;
mod cli;
mod cp;
mod doctor;
#[path = "../../src/guest/screen/emulator.rs"]
#[expect(dead_code, reason = "tests of the model look at more of it")]
mod emulator;
mod engine;
mod exec;
mod execs;
mod flatten;
mod gaps;
mod guest;
mod idle;
mod link;
mod moving;
mod orphans;
mod pid1;
mod programs;
mod pull;
mod rebuild;
mod reports;
mod saves;
mod sessions;
mod shown;
mod snapshot;
mod subscribed;
mod systemd;
mod tables;
mod terminals;
mod timeline;
mod viewers;
mod walk;

// What the emulator takes sizes in.
use abx::guest::wire;
