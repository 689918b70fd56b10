//! Numbers that programs write to files, and sizes in options: each place has Linux's own rules.

use super::errno::{self, Errno};

/// A number in a file of sysfs (kstrtoul, base 10): digits, after a `+` or not, and one end of line or none. A zero byte ends
/// the text.
///
/// # Errors
///
/// ERANGE if it has more than 64 bits, whatever follows. EINVAL for any other text.
pub fn of_sysfs(bytes: &[u8]) -> errno::Result<u64> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (value, len) = digits(text, 10);
    let value = value.ok_or(Errno::ERANGE)?;
    if len > 0 && matches!(&text[len..], b"" | b"\n") { Ok(value) } else { Err(Errno::EINVAL) }
}

/// A number of `/proc/sys`, and how many bytes it takes with the space around it (proc_doulongvec_minmax): decimal,
/// octal after a 0, hexadecimal after 0x.
///
/// # Errors
///
/// EINVAL: it is none, has more than 64 bits or 20 characters, or something but space follows at once.
pub fn of_sysctl(bytes: &[u8]) -> errno::Result<(i128, usize)> {
    const MOST_BYTES: usize = 20;
    let start = nr_spaces(bytes);
    let text = &bytes[start..];
    let is_negative = text.len() > 1 && text[0] == b'-';
    let number = &text[usize::from(is_negative)..];
    let (radix, prefix) = radix(number);
    let (value, len) = digits(&number[prefix..], radix);
    let end = usize::from(is_negative) + prefix + len;
    let is_apart = text.get(end).is_none_or(|next| b" \t\n".contains(next));
    let value = value.filter(|_| len > 0 && is_apart && end <= MOST_BYTES).ok_or(Errno::EINVAL)?;
    let value = if is_negative { -i128::from(value) } else { value.into() };
    Ok((value, start + end + nr_spaces(&text[end..])))
}

/// A size in bytes (memparse): a number as in `/proc/sys`, and a unit or none. What follows does not count.
pub fn size(text: &[u8]) -> Option<u64> {
    let (radix, prefix) = radix(text);
    let (value, len) = digits(&text[prefix..], radix);
    let unit = text.get(prefix + len).map_or(0, u8::to_ascii_uppercase);
    let shift = b"KMGTPE".iter().position(|known| *known == unit).map_or(0, |place| 10 * (place + 1));
    value.filter(|_| len > 0)?.checked_mul(1 << shift)
}

/// The digits at the beginning: their value, unless it has more than 64 bits, and how many there are.
fn digits(text: &[u8], radix: u32) -> (Option<u64>, usize) {
    let values = text.iter().map_while(|byte| char::from(*byte).to_digit(radix));
    values.fold((Some(0), 0), |(sum, len), digit| {
        let sum = sum.and_then(|sum: u64| sum.checked_mul(radix.into())?.checked_add(digit.into()));
        (sum, len + 1)
    })
}

/// The base that a number shows by its beginning, and how long that beginning is.
fn radix(text: &[u8]) -> (u32, usize) {
    match text {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, 2),
        [b'0', ..] => (8, 0),
        _ => (10, 0),
    }
}

fn nr_spaces(text: &[u8]) -> usize {
    text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count()
}
