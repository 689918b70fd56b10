//! Finding the probe's records among what the program wrote.

use serde::Deserialize;
use std::hash::{BuildHasher, RandomState};

/// The probe's record of a run; the keys are those that it writes.
#[derive(Deserialize, Clone, Debug, PartialEq)]
pub struct Record {
    pub wall_ns: u64,
    pub user_us: u64,
    pub system_us: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub max_rss_kib: u64,
    /// As wait4(2) gives it.
    status: u32,
}

impl Record {
    /// The exit code that a shell would show.
    pub fn exit_code(&self) -> u8 {
        match (self.status & 0x7f, self.status >> 8 & 0xff) {
            (0, code) => code as u8,
            (signal, _) => 128 + signal as u8,
        }
    }
}

/// A run of the program.
pub struct Ran {
    pub record: Record,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
}

/// Returns the mark before each record: no program can guess it.
pub fn marker() -> String {
    format!("softfault-record-{:016x}:", RandomState::new().hash_one(0))
}

/// A run: what was written in it, and the line that ends it.
#[derive(Debug, PartialEq)]
pub struct Part<'a> {
    pub text: &'a [u8],
    /// JSON.
    pub line: &'a [u8],
}

/// Cuts a channel's bytes at its records; what follows the last comes back, too.
pub fn cut<'a>(marker: &str, mut stream: &'a [u8]) -> (Vec<Part<'a>>, &'a [u8]) {
    let mut parts = Vec::new();
    while let Some(at) = find(stream, marker.as_bytes()) {
        let (text, rest) = stream.split_at(at);
        let rest = &rest[marker.len()..];
        let Some(end) = rest.iter().position(|b| *b == b'\n') else { break };
        parts.push(Part { text, line: &rest[..end] });
        stream = &rest[end + 1..];
    }
    (parts, stream)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    // Long outputs are the rule where there are any: step from one first byte to the next.
    let first = *wanted.first()?;
    let mut at = 0;
    while let Some(next) = text[at..].iter().position(|b| *b == first) {
        at += next;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_cut_at_its_records() {
        let (parts, rest) = cut("mm:", b"one\nmmm:{1}\nmm:{2}\ntail mm:{3");
        let wanted = [Part { text: b"one\nm", line: b"{1}" }, Part { text: b"", line: b"{2}" }];
        assert_eq!((parts.as_slice(), rest), (&wanted[..], &b"tail mm:{3"[..]));
        assert_eq!(cut("mm:", b"").0, []);
    }

    #[test]
    fn markers_differ_and_statuses_are_a_shells() {
        assert_ne!(marker(), marker());
        let line =
            r#"{"wall_ns":5,"user_us":1,"system_us":2,"minor_faults":3,"major_faults":0,"max_rss_kib":4,"status":"#;
        let code = |status: u32| {
            let record: Record = serde_json::from_str(&format!("{line}{status}}}")).expect("all keys");
            record.exit_code()
        };
        assert_eq!([code(0), code(42 << 8), code(11), code(128 | 6)], [0, 42, 139, 134]);
    }
}
