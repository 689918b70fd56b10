//! The directions in which a file is ready.

bitflags::bitflags! {
    /// Events that a file is ready for; values as poll(2) and epoll(7) have them.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Ready: u32 {
        /// Reading does not wait.
        const IN = 1;
        /// Writing does not wait.
        const OUT = 4;
        /// The other side cannot receive any more.
        const ERR = 8;
        /// The other side has gone.
        const HUP = 16;
    }
}
