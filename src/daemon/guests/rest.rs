//! How long a sandbox is left alone whose connections end by what makes no sense: it comes again at once, and would keep
//! this daemon busy with nothing else.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest: each is twice the one before.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long after a pause all was well when the next one is a first again.
const CALM: Duration = Duration::from_secs(60);

/// How much longer a pause may take for somebody to wait for its end; past it he is answered without the sandbox.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pauses of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pause: Duration,
    until: Option<Instant>,
}

impl Rest {
    /// A connection made no sense.
    pub(super) fn begin(&mut self) -> Duration {
        let now = Instant::now();
        let is_first = self.until.is_none_or(|until| now >= until + CALM);
        self.pause = if is_first { FIRST_PAUSE } else { (self.pause * 2).min(LONGEST_PAUSE) };
        self.until = Some(now + self.pause);
        self.pause
    }

    /// Until when no connection is taken, if that is so.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|until| Instant::now() < *until)
    }

    /// Whether nobody waits for its end.
    pub(super) fn is_long(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() + PATIENCE < until)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, sleep_until};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_bound_and_begin_anew_after_a_calm() {
        let mut rest = Rest::default();
        assert_eq!((rest.until(), rest.is_long()), (None, false));
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pauses.push(rest.begin());
            assert_eq!(rest.is_long(), pauses.last().is_some_and(|pause| *pause > PATIENCE));
            sleep_until(rest.until().expect("it rests")).await;
            assert_eq!((rest.until(), rest.is_long()), (None, false));
        }
        assert!(pauses.windows(2).all(|two| two[1] == (two[0] * 2).min(LONGEST_PAUSE)), "{pauses:?}");
        assert_eq!((pauses[0], pauses[11]), (FIRST_PAUSE, LONGEST_PAUSE));
        sleep(CALM).await;
        assert_eq!(rest.begin(), FIRST_PAUSE);
    }
}
