//! A private mapping of a file that is read.
#![deny(unsafe_code)]

mod common;

use common::files::{Reads, content as byte_of, file};
use common::objects::{bytes, content, whole};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, Errno, FaultError, MapFlags};

/// A private mapping shows the file until it is stored to, and its copies stay when clean folios go.
#[test]
fn a_private_mapping_copies_what_was_read() {
    in_each_setup(1, 16 << 20, |w| {
        let (file, object) = file(w, 8 * PAGE, FolioOrders::BASE);
        let part = whole(&object);
        assert_eq!(w.space.mmap_object(BASE, 8 * PAGE, RW, MapFlags::PRIVATE | FIXED, part), Ok(BASE));
        // Read for the store, and copied in the next turn: one fault.
        w.space.write(BASE + PAGE, &[0xaa]).unwrap();
        assert_eq!((file.log(), w.rss().major_faults), (vec![(1, 1)], 1));
        assert_eq!(bytes::<2>(w.space, BASE + PAGE), [0xaa, byte_of(1, 0)]);
        assert_eq!((content(&object, PAGE), bytes(w.space, BASE + 2 * PAGE)), ([byte_of(1, 0)], [byte_of(2, 0)]));
        file.set(Reads::Fail);
        assert_eq!(w.space.write(BASE + 3 * PAGE, &[1]).unwrap_err().errno(), Errno::EFAULT);
        file.set(Reads::End);
        file.change();
        object.discard(0..8);
        assert_eq!(bytes(w.space, BASE + PAGE), [0xaa], "a hole keeps copies");
        assert_eq!(bytes(w.space, BASE + 2 * PAGE), [byte_of(2, 1)]);
        object.set_size_bytes(PAGE);
        assert_eq!(w.space.handle_fault(BASE + PAGE, Access::Read), Err(FaultError::BeyondObject));
    });
}

/// A program has read a page of a file through an entry that a fault on another page made, and then copies it: the file's page
/// was used.
#[test]
fn a_copy_notes_that_its_source_was_used() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let (_file, object) = file(w, 8 * PAGE, FolioOrders::BASE);
        w.space.mmap_object(BASE, 8 * PAGE, RW, MapFlags::PRIVATE | FIXED, whole(&object)).unwrap();
        w.space.madvise(BASE, 8 * PAGE, Advice::WillNeed).unwrap();
        w.space.handle_fault(BASE, Access::Read).unwrap();
        let running = w.cpu.enter(w.space).unwrap();
        running.load(BASE + PAGE, &mut [0]).unwrap();
        assert!(!object.object_page_state(1).unwrap().referenced, "only its entry knows");
        running.store(BASE + PAGE, &[1]).unwrap();
        assert!(object.object_page_state(1).unwrap().referenced);
    });
}
