//! Files: what their pages have, sizes, holes, reads and writes. A private mapping shows a page of the file until it has
//! a copy, which a hole leaves alone and a smaller size takes.

use super::*;
use crate::op::{FILE_END, FILE_PAGES, FILE_WORD_AT, NR_FILES, file_word};

const EIO: Outcome = Outcome::Errno(Errno::EIO.0 as u64);

impl Model {
    /// They are the first objects. Once, before any other.
    pub(super) fn make_files(&mut self) -> Answer {
        if !self.objects.is_empty() {
            return Err(Unknown);
        }
        let size_bytes = Some(FILE_PAGES * PAGE);
        let memory = Object { nr_pages: FILE_PAGES, size_bytes, ..Object::default() };
        let page = |index: u64| (index, Content::from([(FILE_WORD_AT as u16, file_word(index))]));
        let read = Object { is_read: true, pages: (0..FILE_PAGES).map(page).collect(), ..memory.clone() };
        self.objects = vec![memory, read];
        Ok(OK)
    }

    fn file(&mut self, file: u64) -> Result<&mut Object, Unknown> {
        let object = self.objects.get_mut(usize::try_from(file).map_err(|_| Unknown)?);
        object.filter(|object| object.size_bytes.is_some()).ok_or(Unknown)
    }

    /// Whether one of these pages is of a file.
    pub(super) fn has_files(&self, who: u64, first: u64, end: u64) -> bool {
        let is_of_file = |page: &Page| {
            let object = page.attrs.object.or(page.attrs.behind);
            object.is_some_and(|object| self.objects[object].size_bytes.is_some())
        };
        first < end && self.space(who).pages.range(first..end).any(|(_, page)| is_of_file(page))
    }

    /// Whether a store to that address would go behind the end of a file, into its last page: what becomes of it is
    /// the system's choice.
    pub(super) fn is_behind_the_size(&self, who: u64, addr: u64) -> bool {
        let page = self.space(who).pages.get(&(addr / PAGE));
        page.is_some_and(|page| {
            let size = page.shown().and_then(|object| self.objects[object].size_bytes);
            let at = page.index * PAGE + addr % PAGE;
            size.is_some_and(|size| (size..size.next_multiple_of(PAGE)).contains(&at))
        })
    }

    pub(super) fn mmap_file(&mut self, who: u64, op: &Op) -> Answer {
        let [addr, len, prot, flags, landing, of] = op.args;
        self.file(of >> 32)?;
        self.mmap(who, [addr, len, prot, flags, landing], Some(((of >> 32) as usize, of & 0xffff_ffff)))
    }

    pub(super) fn set_file_size(&mut self, file: u64, bytes: u64) -> Answer {
        let (object, nr_pages) = (self.file(file)?, bytes.div_ceil(PAGE));
        let is_smaller = Some(bytes) < object.size_bytes;
        (object.size_bytes, object.nr_pages) = (Some(bytes), nr_pages);
        if !is_smaller {
            return Ok(OK);
        }
        object.pages.retain(|index, _| *index < nr_pages);
        object.failed.retain(|index| *index < nr_pages);
        if let Some(last) = object.pages.get_mut(&(bytes / PAGE)) {
            last.retain(|at, _| u64::from(*at) < bytes % PAGE);
        }
        for page in self.spaces.values_mut().flat_map(|space| space.pages.values_mut()) {
            if page.attrs.behind == Some(file as usize) && page.index >= nr_pages {
                (page.present, page.lazy) = (Present::No, false);
                page.content.clear();
            }
        }
        Ok(OK)
    }

    pub(super) fn punch_file(&mut self, file: u64, first: u64, nr_pages: u64) -> Answer {
        let object = self.file(file)?;
        let goes = |index: &u64| (first..first + nr_pages).contains(index);
        object.pages.retain(|index, _| !goes(index));
        object.failed.retain(|index| !goes(index));
        Ok(OK)
    }

    pub(super) fn read_file(&mut self, file: u64, at: u64) -> Answer {
        let object = self.file(file)?;
        if Some(at) >= object.size_bytes {
            return Ok(Outcome::Value(FILE_END));
        }
        if object.failed.contains(&(at / PAGE)) {
            return Ok(EIO);
        }
        let word = object.pages.get(&(at / PAGE)).and_then(|content| content.get(&word_of(at))).copied().unwrap_or(0);
        Ok(Outcome::Value(word >> (at % 8 * 8) & 0xff))
    }

    /// Behind the end a write would make the file longer: another call.
    pub(super) fn write_file(&mut self, file: u64, at: u64, byte: u64) -> Answer {
        let object = self.file(file)?;
        if Some(at) >= object.size_bytes {
            return Err(Unknown);
        }
        if object.failed.contains(&(at / PAGE)) {
            return Ok(EIO);
        }
        let word = object.pages.entry(at / PAGE).or_default().entry(word_of(at)).or_insert(0);
        let shift = at % 8 * 8;
        *word = *word & !(0xff << shift) | (byte & 0xff) << shift;
        Ok(OK)
    }
}

/// Questions of the generator.
impl Model {
    /// Whether there are files.
    pub(crate) fn has_file(&self) -> bool {
        self.objects.len() >= NR_FILES && self.objects[0].size_bytes.is_some()
    }

    /// The size of a file.
    pub(crate) fn file_size(&self, file: usize) -> u64 {
        self.objects.get(file).and_then(|object| object.size_bytes).unwrap_or(0)
    }

    /// Pages of the program that map a file.
    pub(crate) fn pages_of_files(&self, who: u64) -> Vec<u64> {
        let pages = self.space(who).pages.keys().copied();
        pages.filter(|number| self.has_files(who, *number, number + 1)).collect()
    }
}

fn word_of(at: u64) -> u16 {
    (at % PAGE / 8 * 8) as u16
}
