//! A program's first stack: arguments, environment and the auxiliary vector, as
//! the System V ABI lays them out.

use super::elf::Loaded;
use crate::mm::{Space, USER_END};
use crate::random;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::auxvec::{
    AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_GID, AT_HWCAP, AT_HWCAP2, AT_NULL, AT_PAGESZ, AT_PHDR,
    AT_PHENT, AT_PHNUM, AT_RANDOM, AT_SECURE, AT_UID,
};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_STACK, PROT_NONE, PROT_READ, PROT_WRITE,
};

/// Its size; pages come as they are touched.
pub const STACK_BYTES: u64 = 8 << 20;
/// What lies below it and stays unmapped to any use: a stack that grows over
/// its end is to be caught, not to run into another mapping.
const GUARD_BYTES: u64 = 1 << 20;

/// Why there is no stack.
#[derive(Debug)]
pub struct NoStack;

/// What is being laid out, from the top down.
struct Builder<'a> {
    space: &'a Space,
    at: u64,
}

impl Builder<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<u64, NoStack> {
        self.at -= bytes.len() as u64;
        self.space.write_forced(self.at, bytes).map_err(|_| NoStack)?;
        Ok(self.at)
    }
    fn push_text(&mut self, text: &str) -> Result<u64, NoStack> {
        self.push(&[0])?;
        self.push(text.as_bytes())
    }
    fn push_texts(&mut self, texts: &[String]) -> Result<Vec<u64>, NoStack> {
        texts.iter().map(|text| self.push_text(text)).collect()
    }
}

/// Maps the stack and fills it; gives the stack pointer to start with.
pub fn build(space: &Space, loaded: &Loaded, args: &[String], env: &[String]) -> Result<u64, NoStack> {
    let start = USER_END - STACK_BYTES;
    let flags = u64::from(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_STACK | MAP_NORESERVE);
    space.mmap(start, STACK_BYTES, u64::from(PROT_READ | PROT_WRITE), flags).map_err(|_| NoStack)?;
    space.mmap(start - GUARD_BYTES, GUARD_BYTES, u64::from(PROT_NONE), flags).map_err(|_| NoStack)?;

    let text_bytes: usize = args.iter().chain(env).map(|t| t.len() + 17).sum();
    if text_bytes as u64 > STACK_BYTES / 4 {
        return Err(NoStack);
    }
    let mut builder = Builder { space, at: USER_END - 16 };
    let path = builder.push_text(args.first().map_or("", |a| a))?;
    let [low, high] = [random::next(), random::next()].map(u64::to_le_bytes);
    let random = builder.push(&[low, high].concat())?;
    let env = builder.push_texts(env)?;
    let args = builder.push_texts(args)?;

    let features = core::arch::x86_64::__cpuid(1).edx;
    let auxiliary = [
        (AT_PHDR, loaded.headers),
        (AT_PHENT, loaded.header_bytes),
        (AT_PHNUM, loaded.nr_headers),
        (AT_PAGESZ, 4096),
        (AT_ENTRY, loaded.entry),
        (AT_UID, 0),
        (AT_EUID, 0),
        (AT_GID, 0),
        (AT_EGID, 0),
        (AT_SECURE, 0),
        (AT_CLKTCK, 100),
        (AT_HWCAP, u64::from(features)),
        (AT_HWCAP2, 0),
        (AT_RANDOM, random),
        (AT_EXECFN, path),
        (AT_NULL, 0),
    ];
    let mut words: Vec<u64> = Vec::new();
    words.push(args.len() as u64);
    words.extend(args.iter().chain(&[0]).chain(&env).chain(&[0]));
    words.extend(auxiliary.iter().flat_map(|(key, value)| [u64::from(*key), *value]));
    builder.at = ((builder.at - words.len() as u64 * 8) & !15) + words.len() as u64 * 8;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    builder.push(&bytes)
}
