//! Deeds about the file: its storage changes, and pages leave its object.

use super::Actor;
use super::changes::MREMAP_TO;
use crate::baton::{FILE_PAGES, PRIVATE_FILE, World, file_pages, private_pages};
use crate::op::PAGE;
use std::sync::PoisonError;

impl Actor<'_, '_> {
    /// A hole: first in the storage, as the core asks for. Bytes afterwards are not zero, if folios are pages:
    /// so bytes from before the hole are told from those after it. Copies stay.
    pub(super) fn punch_file(&mut self) {
        let World { file, file_object, has_small_folios, .. } = self.world;
        let first = self.random.below(FILE_PAGES);
        let end = if self.random.chance(50) { first + 1 } else { FILE_PAGES };
        let ids: Vec<_> = (first..end)
            .map(|index| {
                let value = if *has_small_folios { self.value() } else { 0 };
                let id = self.world.history().begin_removal(file_pages().start + index as usize, value);
                file.set_word(index, value);
                id
            })
            .collect();
        self.world.turns.pass();
        file_object.discard(first..end);
        ids.into_iter().for_each(|id| self.world.history().end(id, true));
    }

    /// The file gets shorter, first the object and then the storage, and as long as before. Copies go, too.
    pub(super) fn resize_file(&mut self) {
        let World { file, file_object, .. } = self.world;
        let all = || file_pages().chain(private_pages());
        self.world.history().bar(all());
        self.removing(all(), || {
            file_object.set_size_bytes(0);
            if file_object.nr_resident_pages() != 0 {
                self.world.history().problems.push("pages behind the file's end".into());
            }
            (0..FILE_PAGES).for_each(|index| file.set_word(index, 0));
            true
        });
        self.world.turns.pass();
        file_object.set_size_bytes(FILE_PAGES * PAGE);
        self.world.history().admit(all());
    }

    /// Moves its private mapping, with the copies.
    pub(super) fn move_file(&mut self, from: u64) {
        let to = if from == PRIVATE_FILE[0] { PRIVATE_FILE[1] } else { PRIVATE_FILE[0] };
        let len = FILE_PAGES * PAGE;
        self.world.history().bar(private_pages());
        let moved = self.world.space.mremap(from, len, len, MREMAP_TO, to);
        self.world.history().note(format!("mremap of the file from {from:#x}: {moved:x?}"));
        if moved.is_ok() {
            self.world.place.lock().unwrap_or_else(PoisonError::into_inner).at.file = to;
        } else if !self.world.history().is_starved {
            self.world.history().problems.push(format!("mremap of the file: {moved:?}"));
        }
        self.world.history().admit(private_pages());
    }
}
