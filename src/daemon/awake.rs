//! Use brings a session back: whoever wants to use one that does not run has it resumed first, unless the caller or the
//! configuration says otherwise.

use std::sync::Arc;

use tokio::time::timeout;

use super::driver::Driver;
use super::exec::{BUSY_LIMIT, runnable};
use super::failure::Failure;
use super::progress::Report;
use crate::model::session::{Session, Status};
use crate::model::step::{Verb, plan};
use crate::proto::errors::Kind;

/// A session that somebody wants to use, and what is to be done if it does not run.
#[derive(Debug, Clone, Default)]
pub struct Use {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Whether it is brought back; none leaves that to the configuration.
    pub resume: Option<bool>,
    /// Hears of it before it happens.
    pub report: Report,
}

impl From<&str> for Use {
    fn from(session: &str) -> Self {
        Self { session: session.to_owned(), ..Self::default() }
    }
}

impl Driver {
    /// A session that runs, brought back where it does not. Of several who want it at once, the first brings it back, and
    /// the others find it running when their turn comes.
    ///
    /// # Errors
    /// `wrong_state` where it is not to be brought back, `busy` while another operation does not end, and those of
    /// `session.resume`.
    ///
    /// # Cancel safety
    /// A resume that has begun goes on when the caller is dropped.
    pub(super) async fn awake(
        &self,
        session: Arc<Session>,
        resume: Option<bool>,
        report: &Report,
    ) -> Result<Arc<Session>, Failure> {
        let refused = |refusal| Failure::refused(&session, refusal);
        if plan(&session, Verb::Resume).map_err(refused)?.operation.is_none() {
            if self.is_elsewhere(&session) {
                // Of what runs on another engine nothing can be used here.
                self.observe(&session).await?;
            }
            return Ok(session);
        }
        if !self.brings_back(resume) {
            return runnable(session);
        }
        let (this, report) = (self.clone(), report.clone());
        self.submit(async move {
            let name = session.name.as_str();
            let Ok(held) = timeout(BUSY_LIMIT, this.hold_id(&session.id)).await else {
                let text = format!("session '{name}': another operation on it has not ended yet");
                return Err(Failure::new(Kind::Busy, text).about(name));
            };
            let mut held = held.ok_or_else(|| Failure::no_session(name))?;
            this.resume_held(&mut held, &report).await?;
            held.warnings.drain(..).for_each(|warning| report.warn(warning));
            Ok(held.session)
        })
        .await
    }

    /// Whether use brings a session back, as the caller has it, else the configuration.
    pub(super) fn brings_back(&self, resume: Option<bool>) -> bool {
        resume.unwrap_or(self.config().auto_resume.value)
    }
}

/// The line that says that a session is about to be brought back.
pub(super) fn line(session: &Session) -> String {
    let was = match (session.status, session.reason) {
        (Status::Saved, _) | (_, None) => session.status.as_str().to_owned(),
        (status, Some(reason)) => format!("{}: {}", status.as_str(), reason.as_str()),
    };
    format!("Resuming '{}' (was {was}) ...", session.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session::Reason;
    use crate::model::session::tests::sample;

    #[test]
    fn the_line_says_why_the_session_did_not_run() {
        let was = |status, reason| line(&Session { status, reason, ..sample("x") });
        assert_eq!(was(Status::Stopped, Some(Reason::Idle)), "Resuming 'x' (was stopped: idle) ...");
        assert_eq!(was(Status::Saved, Some(Reason::User)), "Resuming 'x' (was saved) ...");
        assert_eq!(was(Status::Paused, None), "Resuming 'x' (was paused) ...");
    }
}
