//! A program's first stack: arguments, environment and the auxiliary vector, as
//! the System V ABI lays them out.

use super::elf::Loaded;
use super::identity::Identity;
use super::limits::Limits;
use crate::linux::errno::Errno;
use crate::port::arch::cpu;
use crate::port::mm::{Space, USER_END, copy_out_forced};
use crate::port::random;
use alloc::vec::Vec;
use linux_raw_sys::auxvec::{
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_FLAGS, AT_GID, AT_HWCAP, AT_HWCAP2, AT_MINSIGSTKSZ,
    AT_NULL, AT_PAGESZ, AT_PHDR, AT_PHENT, AT_PHNUM, AT_PLATFORM, AT_RANDOM, AT_SECURE, AT_UID,
};
use linux_raw_sys::general::RLIMIT_STACK;
use softfault::{MapFlags, Prot};

/// The part that is mapped at first, besides the arguments. Accesses below make it grow.
const FIRST_BYTES: u64 = 128 << 10;
/// Most bytes of arguments and environment, whatever the stack's limit.
const MAX_TEXT_BYTES: u64 = 6 << 20;
/// Most bytes of one of them.
const MAX_ONE_BYTES: usize = 128 << 10;
/// Smallest signal stack that a frame fits on: the frame, and the image.
const MIN_SIGNAL_STACK: u64 = 2048;

/// Why there is no stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStack {
    /// The arguments are too long.
    Arguments,
    /// There is no memory.
    Memory,
}

impl NoStack {
    /// As execve(2) gives it.
    pub fn errno(self) -> Errno {
        match self {
            NoStack::Arguments => Errno::E2BIG,
            NoStack::Memory => Errno::ENOMEM,
        }
    }
}

/// Properties that the new memory takes over from the old one.
pub struct Inherited {
    /// Limits, of which those on memory hold while it is laid out.
    pub limits: Limits,
    /// No huge pages (PR_SET_THP_DISABLE).
    pub thp_disable: bool,
    /// Who runs it.
    pub identity: Identity,
}

/// Texts that the program is given.
pub struct Texts<'a> {
    /// The path it was called by.
    pub path: &'a [u8],
    /// Its arguments.
    pub args: &'a [Vec<u8>],
    /// Its environment.
    pub env: &'a [Vec<u8>],
}

/// Most bytes that arguments and environment may take together, pointers
/// included, if the stack may grow to `stack_bytes`: a quarter is theirs.
pub fn most_text_bytes(stack_bytes: u64) -> u64 {
    (stack_bytes / 4).clamp(MAX_ONE_BYTES as u64, MAX_TEXT_BYTES)
}

impl Texts<'_> {
    /// Bytes that they take; an error if that is too much for the stack.
    pub fn check(&self, stack_bytes: u64) -> Result<u64, NoStack> {
        let all = || self.args.iter().chain(self.env);
        let bytes: u64 = all().map(|t| t.len() as u64 + 9).sum();
        if all().any(|t| t.len() >= MAX_ONE_BYTES) || bytes > most_text_bytes(stack_bytes) {
            return Err(NoStack::Arguments);
        }
        Ok(bytes + self.path.len() as u64 + 1)
    }
}

/// The initial stack, which is written from the top down.
struct Builder<'a> {
    space: &'a Space,
    at: u64,
}

impl Builder<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<u64, NoStack> {
        self.at -= bytes.len() as u64;
        copy_out_forced(self.space, self.at, bytes).map_err(|_| NoStack::Memory)?;
        Ok(self.at)
    }
    fn push_text(&mut self, text: &[u8]) -> Result<u64, NoStack> {
        self.push(&[0])?;
        self.push(text)
    }
    fn push_texts(&mut self, texts: &[Vec<u8>]) -> Result<Vec<u64>, NoStack> {
        texts.iter().map(|text| self.push_text(text)).collect()
    }
}

/// Maps the stack and fills it; gives the stack pointer to start with.
pub fn build(space: &Space, loaded: &Loaded, texts: &Texts, inherited: &Inherited) -> Result<u64, NoStack> {
    let text_bytes = texts.check(inherited.limits.now(RLIMIT_STACK))?;
    let Identity { users, groups, .. } = inherited.identity;
    let bytes = (text_bytes + FIRST_BYTES).next_multiple_of(4096);
    let place = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
    let flags = place | MapFlags::STACK | MapFlags::NORESERVE | MapFlags::GROWSDOWN;
    let prot = Prot::READ | Prot::WRITE;
    space.mmap(USER_END - bytes, bytes, prot, flags).map_err(|_| NoStack::Memory)?;

    let mut builder = Builder { space, at: USER_END - 16 };
    let path = builder.push_text(texts.path)?;
    let platform = builder.push_text(b"x86_64")?;
    let [low, high] = [random::next(), random::next()].map(u64::to_le_bytes);
    let random = builder.push(&[low, high].concat())?;
    let env = builder.push_texts(texts.env)?;
    let args = builder.push_texts(texts.args)?;

    let features = core::arch::x86_64::__cpuid(1).edx;
    let auxiliary = [
        (AT_PHDR, loaded.headers),
        (AT_PHENT, loaded.header_bytes),
        (AT_PHNUM, loaded.nr_headers),
        (AT_PAGESZ, 4096),
        (AT_BASE, loaded.loader_base),
        (AT_FLAGS, 0),
        (AT_ENTRY, loaded.entry),
        (AT_UID, users.real.into()),
        (AT_EUID, users.effective.into()),
        (AT_GID, groups.real.into()),
        (AT_EGID, groups.effective.into()),
        (AT_SECURE, 0),
        (AT_CLKTCK, 100),
        (AT_HWCAP, u64::from(features)),
        (AT_HWCAP2, u64::from(cpu::has_fsgsbase()) << 1),
        (AT_MINSIGSTKSZ, MIN_SIGNAL_STACK),
        (AT_PLATFORM, platform),
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
