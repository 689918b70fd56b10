//! The file of the pool: its mappings, sizes, holes, reads and writes, and holes in any object of the pool.

use super::pool::*;
use super::*;
use crate::numbers::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_PRIVATE, MAP_SHARED, MAP_TYPE};
use crate::op::{FILE_END, HUGE};
use core::ops::Range;

const ENOSPC: Outcome = Outcome::Errno(Errno::ENOSPC.0 as u64);

impl Model {
    pub(super) fn map_pool_file(&mut self, who: u64, [addr, len, prot, flags, landing, page]: [u64; 6]) -> Answer {
        self.pool_file()?;
        let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let shows = match flags & MAP_TYPE {
            _ if len == 0 => return Ok(EINVAL),
            MAP_PRIVATE if flags & MAP_GROWSDOWN != 0 => return Ok(EINVAL),
            MAP_SHARED => Shows::Shared(0),
            MAP_PRIVATE => Shows::Behind(0),
            _ => return Ok(EINVAL),
        };
        if len > self.task_size {
            return Ok(ENOMEM);
        }
        if ![len, page * PAGE, if fixed { addr } else { 0 }].iter().all(|at| at.is_multiple_of(HUGE)) {
            return Ok(EINVAL);
        }
        self.map_pool(who, [addr, len, prot, flags, landing], (shows, page / HUGE_PAGES))
    }

    /// Makes a hole of these base pages in the object. Pages go, with their claims, and private pages that stand for them, or for nothing;
    /// what is missing stays promised.
    pub(super) fn cut_hole(&mut self, object: usize, range: Range<u64>) -> Result<(), Unknown> {
        let of = &mut self.the_pool()?.objects[object];
        let whole = range.start.div_ceil(HUGE_PAGES)..range.end / HUGE_PAGES;
        of.pages.retain(|index, _| !whole.contains(index));
        let goes = |index: u64, at: u64| range.contains(&(index * HUGE_PAGES + at / PAGE));
        of.pages.iter_mut().for_each(|(index, words)| words.retain(|at, _| !goes(*index, *at)));
        self.drop_private(object, &|index| whole.contains(&index));
        Ok(())
    }

    /// Drops the private pages of mappings of the object.
    fn drop_private(&mut self, object: usize, goes: &dyn Fn(u64) -> bool) {
        for page in self.spaces.values_mut().flat_map(|space| space.pool.values_mut()) {
            if page.attrs.shows == Shows::Behind(object) && goes(page.index) && matches!(page.has, Has::Own(_)) {
                page.has = Has::Nothing;
            }
        }
    }

    /// The file is the first object, for ever.
    pub(super) fn make_pool_file(&mut self, nr_pages: u64) -> Answer {
        let pool = self.the_pool()?;
        if !pool.objects.is_empty() {
            return Err(Unknown);
        }
        pool.objects.push(PoolObject { nr_pages, is_file: true, ..PoolObject::default() });
        Ok(OK)
    }

    fn pool_file(&mut self) -> Result<&mut PoolObject, Unknown> {
        self.the_pool()?.objects.first_mut().filter(|object| object.is_file).ok_or(Unknown)
    }

    /// Private pages beyond a smaller size go, too.
    pub(super) fn set_pool_file_size(&mut self, bytes: u64) -> Answer {
        let (file, nr_pages) = (self.pool_file()?, bytes / HUGE);
        if !bytes.is_multiple_of(HUGE) {
            return Err(Unknown);
        }
        let is_smaller = nr_pages < file.nr_pages;
        file.nr_pages = nr_pages;
        if !is_smaller {
            return Ok(OK);
        }
        file.pages.retain(|index, _| *index < nr_pages);
        file.reserved.retain(|index| *index < nr_pages);
        self.drop_private(0, &|index| index >= nr_pages);
        Ok(OK)
    }

    pub(super) fn punch_pool_file(&mut self, first: u64, nr_pages: u64) -> Answer {
        self.pool_file()?;
        self.cut_hole(0, first..first + nr_pages)?;
        Ok(OK)
    }

    pub(super) fn read_pool_file(&mut self, at: u64) -> Answer {
        let file = self.pool_file()?;
        if at >= file.nr_pages * HUGE {
            return Ok(Outcome::Value(FILE_END));
        }
        let word = file.pages.get(&(at / HUGE)).and_then(|words| words.get(&(word_at(at)))).copied().unwrap_or(0);
        Ok(Outcome::Value(word >> (at % 8 * 8) & 0xff))
    }

    pub(super) fn write_pool_file(&mut self, at: u64, byte: u64) -> Answer {
        if at >= self.pool_file()?.nr_pages * HUGE {
            return Err(Unknown);
        }
        if self.touch_object_of_pool(0, at / HUGE).is_none() {
            return Ok(ENOSPC);
        }
        let words = self.pool_file()?.pages.get_mut(&(at / HUGE)).ok_or(Unknown)?;
        let word = words.entry(word_at(at)).or_insert(0);
        *word = with_byte(*word, at, byte);
        Ok(OK)
    }
}

/// Questions of the generator.
impl Model {
    /// The program's pages of the pool, by address / 2 MiB.
    pub(crate) fn pool_pages(&self, who: u64) -> Vec<u64> {
        self.space(who).pool.keys().copied().collect()
    }

    /// Pages of the pool's file.
    pub(crate) fn pool_file_pages(&self) -> u64 {
        self.pool.as_ref().and_then(|pool| pool.objects.first()).map_or(0, |file| file.nr_pages)
    }

    /// Whether there is a pool.
    pub fn has_pool(&self) -> bool {
        self.pool.is_some()
    }
}
