//! abx: named, persistent sandboxes for coding agents.
//!
//! # Modules, and what each may know
//!
//! | module | owns | may import |
//! | --- | --- | --- |
//! | [`paths`], [`config`] | files and directories, settings and their sources, the environment | each other |
//! | [`proto`] | wire types | nothing of ours |
//! | [`model`] | what a session is, what may happen to it, what follows | nothing of ours |
//! | [`store`] | the session table: one writing thread, a published view | model, fault |
//! | [`engine`] | the connection to what runs sandboxes | model, fault; the one in memory tarball too |
//! | [`daemon`] | order of start and stop, the driver, the socket, the methods | all but client and cli |
//! | [`guest`] | what runs as PID 1 in a sandbox; the daemon may see [`guest::wire`] of it | nothing of ours |
//! | [`client`] | finding or starting the daemon, calls | proto, paths |
//! | [`cli`] | the command line, `abx mcp` included | client, proto, config, paths, tarball |
//! | [`tarball`] | reading tar streams, and heads of entries | nothing of ours |
//! | [`fault`] | points where tests interfere, and what they change of time | nothing of ours but paths |
//! | [`fuzzing`] | a fuzzer's ways in, each beside its parser; not in a release | what has a parser |
//!
//! A test reads the `use` lines and fails on any other edge.
//!
//! # Invariants
//!
//! * A row exists before its container, and a container carries its session's id as a label.
//! * An intent is committed before the engine is touched, and the outcome after. A reply never precedes the commit.
//! * An engine that is away changes no status.
//! * A value of a session's environment is in the table and in the command's environment, and nowhere else.

#[cfg(feature = "host")]
pub mod cli;
#[cfg(feature = "host")]
pub mod client;
#[cfg(feature = "host")]
pub mod config;
#[cfg(feature = "host")]
pub mod daemon;
#[cfg(feature = "host")]
pub mod engine;
#[cfg(feature = "host")]
pub mod fault;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(target_os = "linux", feature = "host"))]
pub mod guest;
#[cfg(feature = "host")]
pub mod model;
#[cfg(feature = "host")]
pub mod paths;
#[cfg(feature = "host")]
pub mod proto;
#[cfg(feature = "host")]
pub mod store;
#[cfg(feature = "host")]
pub mod tarball;
