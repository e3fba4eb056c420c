//! Named points where a test may pause or kill the daemon. Without the feature `fault` every call is empty.
//!
//! A test sets `ABX_FAULT=POINT=kill` (or `POINT=pause:FILE`; several separated by commas) in the daemon's environment. `kill` raises
//! SIGKILL at the point; `pause:FILE` waits there until the file exists.

/// Passes the named point.
#[cfg(not(feature = "fault"))]
pub async fn point(_name: &'static str) {}

/// Passes the named point.
#[cfg(feature = "fault")]
pub async fn point(name: &'static str) {
    let Some(setting) = crate::paths::variable("ABX_FAULT") else { return };
    for entry in setting.split(',') {
        let Some((wanted, action)) = entry.split_once('=') else { continue };
        if wanted != name {
            continue;
        }
        if action == "kill" {
            // Errors cannot happen: the process may always signal itself, and then it is gone.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            std::future::pending::<()>().await;
        }
        if let Some(file) = action.strip_prefix("pause:") {
            while !std::path::Path::new(file).exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }
}
