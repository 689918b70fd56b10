//! The log's report of a program that its own instruction has killed.

use super::Info;
use crate::linux::process::thread::Thread;
use crate::port::arch::frame::Frame;
use crate::port::console::log;
use crate::port::trap::{AccessWord, VmaLine};

/// Logs what the program dies of.
pub fn death(thread: &Thread, info: &Info, frame: &Frame) {
    let (signal, code, address) = (info.signal, info.code, info.value);
    let (path, pid, access) = (&thread.mm().program.path, thread.process().pid, AccessWord(frame));
    log!("{path}[{pid}]: killed by signal {signal}, code {code}: {access}, address {address:#x}");
    log!("{}", VmaLine(thread.space(), address));
    log!("{frame}");
}
