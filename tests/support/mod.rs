//! What tests share: homes of their own, daemons that end with the test, sockets, and waiting without luck.

mod daemon;
mod home;
mod socket;
mod until;

pub(crate) use daemon::Daemon;
pub(crate) use home::Home;
pub(crate) use socket::Socket;
pub(crate) use until::{LIMIT, until};
