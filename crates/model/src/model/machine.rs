//! A machine's changes to programs' pages between their steps: memory fails, and pages leave
//! memory for a while.

use super::*;

impl Object {
    /// Whether it has the page, or had it until its memory failed.
    pub(super) fn has(&self, index: u64) -> bool {
        self.pages.contains_key(&index) || self.failed.contains(&index)
    }
}

impl Model {
    /// The same where a pager is at work: mincore(2) says of a page that is out that it is not resident.
    pub fn with_pager(self) -> Model {
        Model { has_pager: true, ..self }
    }

    /// Whether the page may be in the swap area.
    pub(super) fn may_be_out(&self, page: &Page) -> bool {
        let is_there = match page.shown().map(|object| &self.objects[object]) {
            Some(object) => object.pages.contains_key(&page.index),
            // Zeroes that were read may be those of memory that came with a neighbour.
            None => matches!(page.present, Present::Data | Present::Zero),
        };
        self.has_pager && is_there
    }

    /// The memory of the page fails. One of an object fails for all who map it.
    pub fn fail(&mut self, who: u64, number: u64) {
        let Model { spaces, objects, .. } = self;
        let Some(page) = spaces.get_mut(&who).and_then(|space| space.pages.get_mut(&number)) else { return };
        match page.shown().map(|object| &mut objects[object]) {
            Some(object) => {
                object.pages.remove(&page.index);
                object.failed.insert(page.index);
            }
            None => {
                page.present = Present::Failed;
                page.content.clear();
                page.lazy = false;
            }
        }
    }

    /// Whether the page may be the zero frame: still, or again, as a huge page that is split keeps no pages of zeroes.
    pub fn may_be_zero(&self, who: u64, number: u64) -> bool {
        let is_zero = |page: &Page| !page.attrs.has_object() && page.content.values().all(|word| *word == 0);
        self.space(who).pages.get(&number).is_some_and(is_zero)
    }

    /// Whether the page is an object's.
    pub fn is_of_object(&self, who: u64, number: u64) -> bool {
        self.space(who).pages.get(&number).is_some_and(|page| page.shown().is_some())
    }

    /// Rights of the program's page at `addr`, as mmap(2) takes them. None: no page is mapped.
    pub fn rights(&self, who: u64, addr: u64) -> Option<u64> {
        self.space(who).pages.get(&(addr / PAGE)).map(|page| page.attrs.prot)
    }

    /// The program's break.
    pub fn break_of(&self, who: u64) -> u64 {
        self.space(who).brk
    }

    /// Pages of the program that are mapped.
    pub fn pages(&self, who: u64) -> impl Iterator<Item = u64> + '_ {
        self.space(who).pages.keys().copied()
    }

    /// Pages of the program that have memory, or may have.
    pub fn pages_with_memory(&self, who: u64) -> impl Iterator<Item = u64> + '_ {
        let has_memory = |page: &Page| match page.shown().map(|object| &self.objects[object]) {
            Some(object) => object.pages.contains_key(&page.index),
            None => matches!(page.present, Present::Data | Present::Maybe),
        };
        self.space(who).pages.iter().filter(move |(_, page)| has_memory(page)).map(|(number, _)| *number)
    }
}
