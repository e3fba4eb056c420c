//! When a session in which nothing is used is looked at, warned of, and acted on.
//!
//! A countdown runs from the last use. Whether the sandbox is quiet meanwhile is found out by looks at the CPU time that it
//! has used: few of them, each judged against the one before, so that together they cover all of the countdown.

use std::time::Duration;

use super::session::words;

words! {
    /// What is done to a session that was idle for long enough.
    IdleAction {
        /// It is stopped.
        Stop = "stop",
        /// It is frozen, with its memory.
        Pause = "pause",
        /// It is saved.
        Save = "save",
    }
}

words! {
    /// Why a session is not idle.
    Busy {
        /// A command runs.
        Exec = "exec",
        /// A terminal writes.
        Terminal = "terminal",
        /// A client is attached, or copies files.
        Client = "client",
        /// Its processes use the CPU.
        Cpu = "cpu",
    }
}

/// The part of one core, in thousandths, from which on a sandbox is at work. Programs that wait for their user wake up now
/// and then and use some tenths of a percent; the least that does something uses several.
const BUSY_MILLIS: u128 = 10;

/// The longest time between two looks: what begins and ends unseen between them counts in their mean.
const LONGEST_LOOK: Duration = Duration::from_secs(15 * 60);

/// The shortest, so that what a look itself costs, and a program that wakes up once, do not weigh.
const SHORTEST_LOOK: Duration = Duration::from_secs(1);

/// How long before it acts a session is warned of; of a shorter idle time a tenth.
const WARNING: Duration = Duration::from_secs(60);

/// Whether processes that used so much CPU time in so much time are at work.
pub fn is_at_work(used: Duration, time: Duration) -> bool {
    used.as_nanos() * 1000 >= time.as_nanos() * BUSY_MILLIS && !used.is_zero()
}

/// A countdown, in time since some beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Countdown {
    /// The last use.
    pub since: Duration,
    /// How long nothing may be used.
    pub idle: Duration,
    /// The last look since then, and whether it found the sandbox quiet, which the first cannot tell.
    pub looked: Option<(Duration, bool)>,
    /// Whether it was warned of.
    pub warned: bool,
}

/// What to do about a countdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Look at the sandbox.
    Look,
    /// Tell that it is about to end.
    Warn,
    /// It has ended.
    Act,
    /// Nothing until then.
    Wait(Duration),
}

impl Countdown {
    /// When it ends, if nothing is used until then.
    pub fn due(&self) -> Duration {
        self.since.saturating_add(self.idle)
    }

    /// What to do now.
    pub fn next(&self, now: Duration) -> Next {
        let Some((looked, quiet)) = self.looked else { return Next::Look };
        let due = self.due();
        let warn_at = due.saturating_sub(WARNING.min(self.idle / 10));
        let reached =
            if now >= due { Some(due) } else { (now >= warn_at && !self.warned).then_some(warn_at) };
        let look_at = match reached {
            // Only what was seen by then tells that it was quiet until then.
            Some(at) if quiet && looked >= at => {
                return if self.warned { Next::Act } else { Next::Warn };
            }
            Some(_) => looked + SHORTEST_LOOK,
            None => {
                let often = (self.idle / 4).clamp(SHORTEST_LOOK, LONGEST_LOOK);
                (looked + often).min(if self.warned { due } else { warn_at })
            }
        };
        if now >= look_at { Next::Look } else { Next::Wait(look_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// What is done, until it is acted on, about a sandbox that is busy at looks whose times begin like this.
    fn course(idle: Duration, busy: impl Fn(Duration) -> bool) -> Vec<(Duration, Next)> {
        let mut countdown = Countdown { since: Duration::ZERO, idle, looked: None, warned: false };
        let (mut now, mut course) = (Duration::ZERO, Vec::new());
        loop {
            let next = countdown.next(now);
            match next {
                Next::Wait(at) => {
                    assert!(at > now, "time goes on");
                    now = at;
                    continue;
                }
                Next::Look if countdown.looked.is_some_and(|(before, _)| busy(before)) => {
                    countdown =
                        Countdown { since: now, looked: Some((now, false)), warned: false, ..countdown };
                }
                Next::Look => countdown.looked = Some((now, countdown.looked.is_some())),
                Next::Warn => countdown.warned = true,
                Next::Act => {}
            }
            course.push((now, next));
            if next == Next::Act {
                return course;
            }
        }
    }

    fn when(course: &[(Duration, Next)], what: Next) -> Vec<Duration> {
        course.iter().filter(|(_, next)| *next == what).map(|(at, _)| *at).collect()
    }

    #[test]
    fn a_quiet_session_is_looked_at_a_few_times_warned_of_once_and_acted_on_when_it_is_due() {
        let course = course(60 * MINUTE, |_| false);
        assert_eq!(when(&course, Next::Act), [60 * MINUTE]);
        assert_eq!(when(&course, Next::Warn), [59 * MINUTE]);
        let looks = when(&course, Next::Look);
        assert_eq!(looks, [0, 15, 30, 45, 59, 60].map(|minutes| minutes * MINUTE));
    }

    #[test]
    fn work_puts_the_end_off_until_so_long_after_it() {
        let course = course(60 * MINUTE, |before| before < 100 * MINUTE);
        let act = when(&course, Next::Act)[0];
        assert!((160 * MINUTE..=175 * MINUTE).contains(&act), "{act:?}");
        assert_eq!(when(&course, Next::Warn).len(), 1, "a session at work is not warned of");
    }

    #[test]
    fn a_session_that_was_overdue_before_anybody_looked_is_watched_for_a_moment_first() {
        let countdown = Countdown {
            since: Duration::ZERO,
            idle: MINUTE,
            looked: Some((600 * MINUTE, false)),
            warned: false,
        };
        assert_eq!(countdown.next(600 * MINUTE), Next::Wait(600 * MINUTE + SHORTEST_LOOK));
        let seen = Countdown { looked: Some((600 * MINUTE + SHORTEST_LOOK, true)), ..countdown };
        assert_eq!(seen.next(600 * MINUTE + SHORTEST_LOOK), Next::Warn);
    }

    #[test]
    fn a_short_idle_time_is_kept_too() {
        let course = course(Duration::from_secs(2), |_| false);
        assert_eq!(when(&course, Next::Act), [Duration::from_secs(2)]);
        assert_eq!(when(&course, Next::Warn).len(), 1);
    }

    #[test]
    fn one_percent_of_a_core_is_work_and_less_is_not() {
        let second = Duration::from_secs(1);
        assert!(is_at_work(Duration::from_millis(10), second));
        assert!(!is_at_work(Duration::from_millis(9), second));
        assert!(!is_at_work(Duration::ZERO, Duration::ZERO));
    }
}
