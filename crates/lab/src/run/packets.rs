//! Parses the machine's output: packets on several channels, as the kernel defines them
//! (`packet.rs`).

pub use super::packet::End;
use super::packet::{Channel, START};
use std::io::{self, Read, Write};

/// The result once the output is over.
#[derive(Default)]
pub struct Rest {
    /// The kernel's log.
    pub log: Vec<u8>,
    /// How it ended, if it got so far as to say so.
    pub end: Option<End>,
}

/// Where the packets go.
pub struct Sinks<'a> {
    /// The program's output.
    pub output: &'a mut dyn Write,
    /// The program's error output, and statistics.
    pub errors: &'a mut dyn Write,
    /// Whom the log is shown to as it comes.
    pub log: Option<&'a mut dyn Write>,
}

/// Reads the next packet; nothing at the end of the stream, or where the stream
/// is cut off inside one. Bytes between packets are passed over.
fn next(stream: &mut dyn Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut byte = [0];
    loop {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        if byte[0] == START {
            break;
        }
    }
    let mut head = [0; 3];
    let mut content = Vec::new();
    let whole = stream.read_exact(&mut head).and_then(|()| {
        content.resize(usize::from(u16::from_le_bytes([head[1], head[2]])), 0);
        stream.read_exact(&mut content)
    });
    match whole {
        Ok(()) => Ok(Some((head[0], content))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Passes the stream on until it ends.
pub fn sort(stream: &mut dyn Read, sinks: &mut Sinks) -> io::Result<Rest> {
    let mut rest = Rest::default();
    while let Some((channel, content)) = next(stream)? {
        match Channel::of(channel) {
            Some(Channel::Output) => {
                sinks.output.write_all(&content)?;
                sinks.output.flush()?;
            }
            Some(Channel::Error | Channel::Stats) => sinks.errors.write_all(&content)?,
            Some(Channel::Log) => {
                if let Some(log) = &mut sinks.log {
                    log.write_all(&content)?;
                }
                rest.log.extend_from_slice(&content);
            }
            Some(Channel::End) => rest.end = End::of(&content),
            Some(Channel::Input) | None => {}
        }
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(stream: &[u8]) -> (Vec<u8>, Vec<u8>, Rest) {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut sinks = Sinks { output: &mut output, errors: &mut errors, log: None };
        let rest = sort(&mut &stream[..], &mut sinks).expect("a slice can be read");
        (output, errors, rest)
    }

    #[test]
    fn channels_are_kept_apart() {
        let stream = b"noise\x1eo\x03\x00ab\n\x1ee\x01\x00E\x1el\x02\x00L\n\x1eo\x01\x00c\x1ex\x02\x00e\x07";
        let (output, errors, rest) = sorted(stream);
        assert_eq!(output, b"ab\nc");
        assert_eq!(errors, b"E");
        assert_eq!(rest.log, b"L\n");
        assert_eq!(rest.end, Some(End::Exit(7)));
    }

    #[test]
    fn a_packet_cut_off_is_the_end() {
        let (output, _, rest) = sorted(b"\x1eo\x05\x00ab");
        assert!(output.is_empty());
        assert_eq!(rest.end, None);
    }
}
