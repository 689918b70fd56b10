//! System calls. `table` has which there are, `call` is one of them. One file per subject; a
//! call gets its raw arguments and checks them itself.

mod attributes;
mod buffer;
mod call;
mod clone;
mod epoll;
mod file;
mod file_lock;
mod identity;
mod info;
mod ioctl;
mod list;
mod lock;
mod map_file;
mod memory;
mod mount;
mod names;
mod numa;
mod path;
mod pidfd;
mod poll;
mod priority;
mod process;
mod process_vm;
mod rw;
mod shm;
mod signal;
mod socket;
mod stat;
mod stream;
mod table;
mod thread;
mod time;
mod transfer;
mod xattr;

use crate::linux::errno;
use crate::linux::process::thread::Thread;
use crate::linux::signal::deliver::Interrupted;
use crate::port::arch::frame::Frame;
use call::Call;
use table::dispatch;

/// Serves the call whose registers are `frame`, and puts its answer there, or gives
/// what is to become of it.
pub fn serve(thread: &Thread, frame: &mut Frame) -> Option<Interrupted> {
    let mut call = Call::new(thread, frame);
    match errno::settle(dispatch(call.number, &mut call)) {
        Ok(rax) => {
            call.frame.rax = rax;
            None
        }
        Err(restart) => Some(Interrupted { restart, number: call.number, deadline_ns: call.deadline.get() }),
    }
}
