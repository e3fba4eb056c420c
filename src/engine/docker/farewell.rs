//! Asking the programs in a sandbox to end.
//!
//! The engine's own stop reaches the main program alone, which only keeps the sandbox alive: with it everything else is
//! killed at once. So each program is asked first, and given its time.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use super::DockerEngine;
use crate::engine::{Engine, EngineError, ExecSpec};

/// Asks every program with TERM and waits until all have ended, or `$1` tenths of a second. Left out are the init, the
/// program that keeps the sandbox alive (a child of the init) and this shell. An interactive shell ignores TERM and
/// ends at HUP, as when its terminal is closed: whatever ignores TERM and has a terminal gets that too.
const SCRIPT: &str = r#"
others() {
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    [ "$pid" != 1 ] && [ "$pid" != "$$" ] && read -r stat <"$dir/stat" || continue
    name=${stat#*(} name=${name%)*} rest=${stat##*) }
    set -- $rest
    [ "$1" = Z ] || [ "$2" = "$$" ] && continue
    [ "$name" = sleep ] && [ "$2" = 1 ] && continue
    echo "$pid $5"
  done
}
others 2>/dev/null | while read -r pid tty; do
  kill -TERM "$pid" && [ "$tty" != 0 ] || continue
  while read -r key mask; do
    [ "$key" = SigIgn: ] && [ $((0x$mask & 0x4000)) != 0 ] && kill -HUP "$pid"
  done <"/proc/$pid/status"
done 2>/dev/null
tenths=$1
while [ "$tenths" -gt 0 ] && [ -n "$(others 2>/dev/null)" ]; do
  sleep 0.1
  tenths=$((tenths - 1))
done
"#;

/// Time that the asking may take beyond the grace itself.
const MARGIN: Duration = Duration::from_secs(5);

/// Asks, waits, and gives what is left of the grace. A sandbox without a shell, or in which nothing else runs, is done
/// at once.
pub(super) async fn say(engine: &DockerEngine, id: &str, grace: Duration) -> Result<Duration, EngineError> {
    let begun = Instant::now();
    let busy = engine.excluded(id).await?.iter().any(|found| found.kind == "process");
    if !busy || grace.is_zero() {
        return Ok(grace);
    }
    let spec = ExecSpec {
        exec_id: format!("farewell-{id}"),
        argv: ["/bin/sh", "-c", SCRIPT, "abx", &(grace.as_millis() / 100).to_string()]
            .map(str::to_owned)
            .to_vec(),
        env: Vec::new(),
        cwd: Some("/".to_owned()),
        user: Some("0".to_owned()),
        tty: None,
        stdin: false,
    };
    let mut io = engine.exec(id, &spec).await?;
    // Whoever has not ended by then is killed with the sandbox.
    let _ = timeout(grace + MARGIN, async { while io.output.next().await.is_some() {} }).await;
    Ok(grace.saturating_sub(begun.elapsed()))
}
