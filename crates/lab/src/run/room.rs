//! The bytes that an archive has room for, and reading no more than those.

use super::RunError;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The sizes in an archive have 32 bits, and QEMU loads none that is larger.
const MOST_BYTES: u64 = u32::MAX as u64;
/// A header and a name of 4 KiB, at most, and the ends of both.
const ENTRY_BYTES: u64 = 4608;

/// Bytes that an archive may still get.
#[derive(Clone)]
pub struct Room(u64);

impl Room {
    /// That of an empty archive.
    pub fn of_archive() -> Room {
        Room(MOST_BYTES)
    }
    /// Takes the bytes of an entry away, or refuses the argument that it is from.
    pub fn take(&mut self, argument: &str, bytes: u64) -> Result<(), RunError> {
        let left = self.0.checked_sub(ENTRY_BYTES).and_then(|left| left.checked_sub(bytes));
        let full = || RunError::Argument(format!("{argument}: the files should have less than 4 GiB, all together"));
        self.0 = left.ok_or_else(full)?;
        Ok(())
    }
    /// The most that one more file can have.
    pub fn most_bytes(&self) -> u64 {
        self.0.saturating_sub(ENTRY_BYTES)
    }
}

/// Reads a file, and stops one byte behind `most`: its size on the host may be 0, or grow meanwhile.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    bytes.try_reserve_exact(file.metadata()?.len().min(most) as usize)?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_archive_holds_are_refused_by_their_argument() {
        let mut room = Room(20_000);
        assert!(room.take("--root x", 1000).is_ok() && room.take("--root x", 1000).is_ok());
        let refused = |mut room: Room, bytes| room.take("--file x", bytes).map_err(|e| e.to_string());
        let why = "--file x: the files should have less than 4 GiB, all together".to_string();
        assert_eq!(room.most_bytes(), 4176);
        assert_eq!(refused(room.clone(), 4177), Err(why.clone()));
        assert_eq!(refused(room, 4176), Ok(()));
        assert_eq!(refused(Room(MOST_BYTES), u64::MAX), Err(why));
    }

    #[test]
    fn a_file_that_grows_is_read_to_the_end_of_the_room() {
        let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert_eq!(read_at_most(own, 10).map(|bytes| bytes.len()).ok(), Some(11));
        assert_eq!(read_at_most(own, 1 << 20).ok(), fs::read(own).ok());
    }
}
