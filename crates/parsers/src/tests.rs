//! Programs whose addresses contradict themselves.

use super::run;

const LOAD: u32 = 1;
const INTERP: u32 = 3;

fn header(kind: u16, entry: u64, nr_segments: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([kind.to_le_bytes(), 62u16.to_le_bytes()].concat());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([entry.to_le_bytes(), 64u64.to_le_bytes(), [0; 8]].concat());
    bytes.extend([0; 4]);
    bytes.extend([64u16, 56, nr_segments, 0, 0, 0].map(u16::to_le_bytes).concat());
    bytes
}

fn segment(kind: u32, [offset, addr, file_bytes, bytes]: [u64; 4]) -> Vec<u8> {
    let words = [offset, addr, addr, file_bytes, bytes, 4096];
    [kind.to_le_bytes(), 5u32.to_le_bytes()].concat().into_iter().chain(words.map(u64::to_le_bytes).concat()).collect()
}

/// A program that names a loader, and the loader, whose entry is given.
pub fn with_loader(entry: u64) -> Vec<u8> {
    let name_at = 64 + 2 * 56;
    let segments = [segment(INTERP, [name_at, 0, 3, 3]), segment(LOAD, [0, 0x40_0000, 64, 64])].concat();
    let program = [header(2, 0x40_0000, 2), segments, b"/l\0".to_vec()].concat();
    let loader = [header(3, entry, 1), segment(LOAD, [0, 0, 64, 8192])].concat();
    [vec![3], (program.len() as u16).to_le_bytes().to_vec(), program, loader].concat()
}

#[test]
fn a_loader_starts_in_the_programs_half() {
    assert_eq!(run(&with_loader(16)), Ok(()));
    for entry in [1 << 47, 1 << 63, 0xffff_8000_0000_0000] {
        assert_eq!(run(&with_loader(entry)), Ok(()), "{entry:#x}");
    }
}

#[test]
fn options_and_numbers_of_any_length() {
    for text in
        ["pagesize=2M,size=50%,min_size=1", "size=18446744073709551615", "nr_inodes=0x10k,mode=7777", "size=%", "="]
    {
        assert_eq!(run(&[b"\0", text.as_bytes()].concat()), Ok(()));
        assert_eq!(run(&[b"\x01", text.as_bytes()].concat()), Ok(()));
    }
    assert_eq!(run(&[]), Ok(()));
    assert_eq!(run(&[3]), Ok(()));
}
