//! Calling a sandbox's abx-init through the engine, where it cannot reach us by itself.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::io::{AsyncWriteExt, copy};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::command::line;
use super::{CONNECT_LIMIT, Guests, Slot};
use crate::engine::{Chunk, EngineError, ExecIo, ExecSpec, Observed};

impl Guests {
    /// Opens a connection to a sandbox through the engine, unless one is there. One caller at a time: the others find
    /// what it opened, or wait for it no longer than for a sandbox that connects by itself.
    pub(super) async fn call(&self, slot: &Arc<Slot>, sandbox: Observed) -> Result<(), EngineError> {
        let Ok(_calling) = timeout(CONNECT_LIMIT, slot.calling.lock()).await else { return Ok(()) };
        if slot.live().is_some() {
            return Ok(());
        }
        let io = self.0.engine.exec(&sandbox.id, &spec()).await?;
        let failed = |text: String| EngineError::Failed { call: "exec", text };
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.to_string()))?;
        tokio::spawn(carry(theirs, io));
        self.0.greet(slot, ours, sandbox).await.map_err(failed)
    }
}

/// abx-init as the main program was started from, also where its directory was taken away since.
const PROGRAM: &str = "/proc/1/exe";

/// Lines of one bridge's complaints that are logged: it has one, and ends with it. What comes from inside is not trusted.
const MAX_COMPLAINTS: u32 = 3;

/// As root: abx-init takes calls from its own user alone.
fn spec() -> ExecSpec {
    ExecSpec {
        exec_id: format!("bridge-{}", uuid::Uuid::now_v7()),
        argv: vec![PROGRAM.to_owned(), "bridge".to_owned()],
        env: Vec::new(),
        cwd: Some("/".to_owned()),
        user: None,
        tty: None,
        stdin: true,
    }
}

/// Carries bytes both ways until either side ends.
async fn carry(socket: UnixStream, io: ExecIo) {
    let ExecIo { input: Some(mut input), mut output, .. } = io else { return };
    let (mut from, mut to) = socket.into_split();
    let inward = async {
        // Its end ends the bridge.
        let _ = copy(&mut from, &mut input).await;
        let _ = input.shutdown().await;
    };
    let outward = async {
        let mut complaints = 0;
        while let Some(Ok(chunk)) = output.next().await {
            match chunk {
                Chunk::Stdout(bytes) => {
                    if to.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                Chunk::Stderr(_) if complaints == MAX_COMPLAINTS => {}
                Chunk::Stderr(text) => {
                    complaints += 1;
                    let text = line(&String::from_utf8_lossy(&text));
                    tracing::warn!(text, "a bridge to a sandbox complains");
                }
            }
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}
