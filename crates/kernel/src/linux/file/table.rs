//! The table of file descriptors of a process.

use super::console;
use super::{Kind, Open};
use crate::linux::errno::{self, Errno};
use crate::linux::fs::{Body, Inode};
use crate::port::console::Channel;
use crate::port::heap;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{O_RDONLY, O_RDWR};

/// Numbers are below this, whatever the limit says.
pub const MAX_OPEN: u32 = 4096;
/// Heap that a number costs.
const HEAP_PER_NUMBER: usize = 80;

struct Slot {
    open: Arc<Open>,
    closes_on_exec: bool,
    _charge: heap::Charge,
}

/// The numbers. Those who add one say what the limit is (RLIMIT_NOFILE): numbers
/// are below it.
pub struct Table(BTreeMap<u32, Slot>);

impl Table {
    /// Standard input, output and error output.
    pub fn standard() -> Table {
        super::make_bells();
        let mut table = Table(BTreeMap::new());
        // A program at a terminal reads and writes through any of the three.
        let input = if console::is_terminal() { O_RDWR } else { O_RDONLY };
        let kinds = [(Channel::Input, input), (Channel::Output, O_RDWR), (Channel::Error, O_RDWR)];
        for (channel, flags) in kinds {
            let inode = Inode::new(Body::Console(channel), 0o620);
            let open = inode.and_then(|inode| Open::new(Kind::Console(channel), inode, flags));
            let _ = open.and_then(|open| table.put(open, 0, false, MAX_OPEN.into()));
        }
        table
    }
    /// The file behind a number.
    pub fn get(&self, number: u32) -> errno::Result<Arc<Open>> {
        self.0.get(&number).map(|slot| slot.open.clone()).ok_or(Errno::EBADF)
    }
    /// The numbers in use, from `least` on.
    pub fn numbers(&self, least: u32) -> impl Iterator<Item = u32> {
        self.0.range(least..).map(|(number, _)| *number)
    }
    /// Gives an open file the lowest free number from `least` on.
    pub fn put(&mut self, open: Arc<Open>, least: u32, closes_on_exec: bool, limit: u64) -> errno::Result<u32> {
        let limit = limit.min(MAX_OPEN.into()) as u32;
        if least >= limit {
            return Err(Errno::EINVAL);
        }
        let taken = self.0.range(least..).zip(least..).take_while(|((number, _), n)| **number == *n).count();
        let number = least + taken as u32;
        if number >= limit {
            return Err(Errno::EMFILE);
        }
        let _charge = heap::charge(HEAP_PER_NUMBER)?;
        self.0.insert(number, Slot { open, closes_on_exec, _charge });
        Ok(number)
    }
    /// Gives an open file this number; what had it before.
    pub fn replace(
        &mut self,
        open: Arc<Open>,
        number: u32,
        closes_on_exec: bool,
        limit: u64,
    ) -> errno::Result<Option<Arc<Open>>> {
        if u64::from(number) >= limit.min(MAX_OPEN.into()) {
            return Err(Errno::EBADF);
        }
        let _charge = heap::charge(HEAP_PER_NUMBER)?;
        Ok(self.0.insert(number, Slot { open, closes_on_exec, _charge }).map(|slot| slot.open))
    }
    /// Removes a descriptor and returns its open file.
    pub fn remove(&mut self, number: u32) -> errno::Result<Arc<Open>> {
        self.0.remove(&number).map(|slot| slot.open).ok_or(Errno::EBADF)
    }
    /// Whether execve(2) closes it.
    pub fn closes_on_exec(&self, number: u32) -> errno::Result<bool> {
        self.0.get(&number).map(|slot| slot.closes_on_exec).ok_or(Errno::EBADF)
    }
    /// Says whether execve(2) closes it.
    pub fn set_closes_on_exec(&mut self, number: u32, closes: bool) -> errno::Result<()> {
        self.0.get_mut(&number).ok_or(Errno::EBADF)?.closes_on_exec = closes;
        Ok(())
    }
    /// The same numbers for a child.
    pub fn duplicate(&self) -> errno::Result<Table> {
        // Under the caller's lock nothing may be dropped that is the last of a
        // file: the copies are not, `self` has the files, too.
        let slot = |(number, slot): (&u32, &Slot)| {
            let _charge = heap::charge(HEAP_PER_NUMBER)?;
            Ok((*number, Slot { open: slot.open.clone(), closes_on_exec: slot.closes_on_exec, _charge }))
        };
        Ok(Table(self.0.iter().map(slot).collect::<errno::Result<_>>()?))
    }
    /// Takes away what another program is not to have; the caller drops it.
    pub fn take_cloexec(&mut self) -> Vec<Arc<Open>> {
        let mut gone = Vec::new();
        self.0.retain(|_, slot| {
            if slot.closes_on_exec {
                gone.push(slot.open.clone());
            }
            !slot.closes_on_exec
        });
        gone
    }
    /// Takes away everything; the caller drops it.
    pub fn take_all(&mut self) -> Vec<Arc<Open>> {
        core::mem::take(&mut self.0).into_values().map(|slot| slot.open).collect()
    }
}
