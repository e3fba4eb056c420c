//! What tests share: homes of their own, daemons that end with the test, sockets, engines, and waiting without luck.

mod daemon;
pub(crate) mod engine;
mod home;
mod own_engine;
mod socket;
pub(crate) mod stack;
mod until;
mod world;

pub(crate) use daemon::Daemon;
pub(crate) use home::Home;
pub(crate) use own_engine::{OwnEngine, Part};
pub(crate) use socket::Socket;
pub(crate) use until::{LIMIT, until};
pub(crate) use world::World;
