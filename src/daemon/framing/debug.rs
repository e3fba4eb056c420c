//! Methods for tests of the socket, which need calls that wait, fail and notify at will.
//!
//! They exist only in builds with the feature `fault`, and only where `ABX_FAULT_METHODS` is set:
//! - `debug.echo` gives its params back;
//! - `debug.wait {file}` answers true once the file exists, and `debug.touch {file, after?}` makes `file` once `after`
//!   exists, whether or not its client still waits;
//! - `debug.left {file}` makes `file` once nobody waits for its answer any more;
//! - `debug.notify {method, count}` sends that many notifications, numbered, and gives how many were queued;
//! - `debug.fill {bytes}` gives a string of this length;
//! - `debug.panic` panics, at once or with `{"later":true}` after it has waited.

use std::path::PathBuf;
use std::time::Duration;

use jsonrpsee::RpcModule;
use jsonrpsee::types::ErrorObjectOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Audience, Notifier, params};

/// How often a file is looked for.
const POLL: Duration = Duration::from_millis(2);

#[derive(Deserialize)]
struct Wait {
    file: PathBuf,
}

#[derive(Deserialize)]
struct Touch {
    file: PathBuf,
    after: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Notify {
    method: String,
    count: u32,
}

#[derive(Serialize)]
struct Numbered {
    number: u32,
}

#[derive(Deserialize)]
struct Fill {
    bytes: usize,
}

#[derive(Deserialize)]
struct Panic {
    #[serde(default)]
    later: bool,
}

type Answer<T> = Result<T, ErrorObjectOwned>;

/// Adds the methods, if they are asked for.
pub(in crate::daemon) fn register<C: Send + Sync + 'static>(module: &mut RpcModule<C>) {
    if crate::paths::variable("ABX_FAULT_METHODS").is_none() {
        return;
    }
    let once = "each name is registered once";
    module.register_method("debug.echo", |p, _, _| params::<Value>(&p)).expect(once);
    module
        .register_method("debug.fill", |p, _, _| Answer::Ok("x".repeat(params::<Fill>(&p)?.bytes)))
        .expect(once);
    module
        .register_async_method("debug.wait", |p, _, _| async move {
            appear(params::<Wait>(&p)?.file).await;
            Answer::Ok(true)
        })
        .expect(once);
    module
        .register_async_method("debug.touch", |p, _, _| async move {
            let Touch { file, after } = params(&p)?;
            if let Some(after) = after {
                appear(after).await;
            }
            Answer::Ok(std::fs::write(file, "").is_ok())
        })
        .expect(once);
    module
        .register_async_method("debug.left", |p, _, extensions| async move {
            let Wait { file } = params(&p)?;
            extensions.get::<Audience>().expect("every call that waits has one").left().await;
            Answer::Ok(std::fs::write(file, "").is_ok())
        })
        .expect(once);
    module
        .register_method("debug.notify", |p, _, extensions| {
            let Notify { method, count } = params(&p)?;
            let notifier = extensions.get::<Notifier>().expect("every call has one");
            let sent = (0..count).filter(|number| notifier.notify(&method, &Numbered { number: *number }));
            Answer::Ok(sent.count())
        })
        .expect(once);
    module
        .register_async_method("debug.panic", |p, _, _| async move {
            let Panic { later } = params(&p)?;
            if later {
                tokio::time::sleep(POLL).await;
            }
            if p.as_str().is_some() {
                panic!("as asked for");
            }
            Answer::Ok(())
        })
        .expect(once);
}

async fn appear(file: PathBuf) {
    while !file.exists() {
        tokio::time::sleep(POLL).await;
    }
}
