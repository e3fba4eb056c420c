//! The socket: framings, calls, the daemon's life, and the programs of others.

mod bridge;
mod calls;
mod clients;
mod crowd;
mod events;
mod handover;
mod http;
mod length;
mod life;
mod limits;
mod replay;
mod subscribers;
mod terminals;
mod texts;
mod websocket;
mod wire;
