//! Stops the machine at notices, so that another CPU can look or do something meanwhile.

use super::{Hosted, PATIENCE};
use softfault::machine::SpaceTag;
use softfault::{Notice, Vm};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The other CPU's side. The one that notifies goes on when it is let.
pub struct Stops {
    notices: Receiver<(SpaceTag, Notice)>,
    go_on: Sender<()>,
}

impl Stops {
    /// Stops at each notice that `is_awaited`. The machine must have no subscriber yet.
    pub fn at(vm: &Vm<Hosted>, is_awaited: fn(&Notice) -> bool) -> Stops {
        let (notice_to, notices) = channel();
        let (go_on, gone_on) = channel();
        let ends = Mutex::new((notice_to, gone_on));
        let stop = move |tag, notice: &Notice| {
            if is_awaited(notice) {
                let ends = ends.lock().unwrap();
                ends.0.send((tag, *notice)).unwrap();
                ends.1.recv().unwrap();
            }
            false
        };
        assert!(vm.machine().on_notice(Box::new(stop)).is_ok());
        Stops { notices, go_on }
    }

    /// Waits for the next notice.
    pub fn next(&self) -> (SpaceTag, Notice) {
        self.notices.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits for a moment, so that the caller can look whether others are done.
    pub fn next_soon(&self) -> Option<(SpaceTag, Notice)> {
        thread::yield_now();
        self.notices.try_recv().ok()
    }

    /// Lets the CPU that notifies go on.
    pub fn go_on(&self) {
        self.go_on.send(()).unwrap();
    }
}
