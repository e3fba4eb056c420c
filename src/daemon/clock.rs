//! The time, as the daemon reads and writes it.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::id::Timestamp;
use crate::store;

/// Now, as the table has it.
pub fn now() -> Timestamp {
    store::now()
}

/// What the wall clock says at an instant of the monotonic one, as the two stand to each other now.
pub fn wall(at: Instant) -> Timestamp {
    let (now, ms) = (Instant::now(), |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let (ahead, ago) = (ms(at.saturating_duration_since(now)), ms(now.saturating_duration_since(at)));
    Timestamp(self::now().0.saturating_add(ahead).saturating_sub(ago))
}

/// RFC 3339 in UTC with milliseconds. Instants outside the years 0 to 9999 read as the nearest that is inside.
pub fn rfc3339(time: Timestamp) -> String {
    format!("{:.3}", instant(time))
}

/// The day in UTC as `YYYYMMDD`.
pub fn day(time: Timestamp) -> String {
    instant(time).strftime("%Y%m%d").to_string()
}

/// Reads RFC 3339.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|t| Timestamp(t.as_millisecond()))
}

fn instant(time: Timestamp) -> jiff::Timestamp {
    const YEAR_9999: i64 = 253_402_207_200_000;
    jiff::Timestamp::from_millisecond(time.0.clamp(0, YEAR_9999)).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_milliseconds_and_read_back() {
        let time = Timestamp(1_769_936_400_123);
        assert_eq!(rfc3339(time), "2026-02-01T09:00:00.123Z");
        assert_eq!(rfc3339(Timestamp(1_769_936_400_000)), "2026-02-01T09:00:00.000Z");
        assert_eq!(parse("2026-02-01T10:00:00.123+01:00"), Some(time));
        assert_eq!(day(time), "20260201");
    }

    #[test]
    fn absurd_times_do_not_panic() {
        assert_eq!(rfc3339(Timestamp(i64::MIN)), "1970-01-01T00:00:00.000Z");
        assert!(rfc3339(Timestamp(i64::MAX)).starts_with("9999"));
    }
}
