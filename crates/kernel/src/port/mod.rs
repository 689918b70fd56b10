//! The port: what Softfault needs of a kernel, and what a kernel needs to run it on
//! bare x86-64. A porter reads this folder; nothing in it names `linux`.
//!
//! `machine` answers what the subsystem asks, `mm` is where the kernel calls it.
//! `arch` and `boot` are the machine, `sched` puts threads on CPUs, `mailbox` asks
//! other CPUs, `trap` is where programs come in.

pub mod arch;
pub mod boot;
pub mod console;
pub mod heap;
pub mod kcompactd;
pub mod machine;
pub mod mailbox;
pub mod mm;
mod packet;
pub mod power;
pub mod random;
pub mod sched;
pub mod selftest;
pub mod sync;
pub mod trap;
