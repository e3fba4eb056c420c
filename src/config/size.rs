//! Sizes, as users write them and as they are shown.

/// Parses a size as docker does: bytes, or a number with `b`, `k`, `m`, `g`, `t` (powers of 1,024).
///
/// # Errors
/// What is wrong with it, as a sentence.
pub fn parse_size_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size: give bytes, or 512m, 2g");
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (number, shift) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 10),
        Some('m') => (&lower[..lower.len() - 1], 20),
        Some('g') => (&lower[..lower.len() - 1], 30),
        Some('t') => (&lower[..lower.len() - 1], 40),
        _ => (lower, 0),
    };
    let value: f64 = number.trim().parse().map_err(|_| bad())?;
    let bytes = value * f64::from(1_u32 << (shift % 30)) * if shift >= 30 { 1_073_741_824.0 } else { 1.0 };
    if !(1.0..=9.0e15).contains(&bytes) {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to lie in 1..=9e15")]
    Ok(bytes as u64)
}

/// A size as people read it, in the unit that suits it.
pub fn size(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut unit = 0;
    let mut tenths = u128::from(count) * 10 / 1024;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}
