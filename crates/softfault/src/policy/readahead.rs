//! Read-ahead: how much of a file is read where a page is missing.
//!
//! Values and pure functions. The pages in the cache before the missing one show how the file is read: there is no
//! state of open files, mappings or CPUs, so that any number of streams keep their windows, no matter which CPU reads
//! them, and random reads between them change nothing.
//!
//! Source: `page_cache_ra_order` and `get_next_ra_size` of Linux, which keep such a state per open file and look at the
//! cache only where it says nothing.

use core::ops::Range;

/// Pages that the first miss of a stream reads.
const FIRST_PAGES: u64 = 4;
/// How much longer the next window is than what is there before it.
const GROWTH: u64 = 4;

/// The part of the longest window before whose use the next one is read.
const EARLY: u64 = 4;

/// The program's advice about its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// Nothing.
    Normal,
    /// `MADV_RANDOM`: nothing is read ahead.
    Random,
    /// `MADV_SEQUENTIAL`: the longest window at once.
    Sequential,
}

/// A page of a file that is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadaheadQuestion {
    /// Its number.
    pub(crate) index: u64,
    /// Pages that the object's size covers.
    pub(crate) nr_pages: u64,
    /// The longest window, in pages.
    pub(crate) most_pages: u64,
    pub(crate) pattern: Pattern,
}

/// The pages to read, from the missing one on. The window ends at a multiple of its length, so that the folios of the next one are
/// large: it may be nearly twice as long as the longest. `is_there` says whether a page is in the cache; it is asked at most ten times.
pub(crate) fn window(question: &ReadaheadQuestion, is_there: &mut dyn FnMut(u64) -> bool) -> Range<u64> {
    let ReadaheadQuestion { index, nr_pages, most_pages, pattern } = *question;
    let most = most_pages.max(1);
    let wanted = match pattern {
        Pattern::Random => return index..index + 1,
        Pattern::Sequential => most,
        Pattern::Normal => match nr_before(index, most, is_there) {
            0 => FIRST_PAGES,
            before => before * GROWTH,
        },
    };
    // A power of two.
    let len = 1 << wanted.min(most).ilog2();
    let end = index.saturating_add(len).checked_next_multiple_of(len).unwrap_or(u64::MAX);
    index..end.min(nr_pages).max(index + 1)
}

/// The next window of a stream, if it is to be read before the stream needs it: where `index` and all before it, as far as the
/// longest window, are there, and the page a quarter of that behind it is not. It begins with the first page that is missing.
/// `is_there` is asked once, if that page is there.
pub(crate) fn next_window(question: &ReadaheadQuestion, is_there: &mut dyn FnMut(u64) -> bool) -> Option<Range<u64>> {
    let ReadaheadQuestion { index, nr_pages, most_pages, pattern } = *question;
    let mut missing = index.saturating_add((most_pages / EARLY).max(1)).min(nr_pages.saturating_sub(1));
    if pattern == Pattern::Random || missing <= index || is_there(missing) {
        return None;
    }
    if nr_before(index, most_pages, is_there) * 2 <= most_pages || !is_there(index) {
        return None;
    }
    let mut there = index;
    while missing - there > 1 {
        let between = there.midpoint(missing);
        if is_there(between) { there = between } else { missing = between }
    }
    Some(window(&ReadaheadQuestion { index: missing, ..*question }, is_there))
}

/// About how many pages are there without a gap before this one: a power of two, found by looks at distances that double.
fn nr_before(index: u64, most: u64, is_there: &mut dyn FnMut(u64) -> bool) -> u64 {
    let mut nr = 0;
    let mut by = 1;
    while by <= most && by <= index && is_there(index - by) {
        nr = by;
        by *= 2;
    }
    nr
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const MOST: u64 = 256;

    /// A cache that is filled by what is read.
    #[derive(Default)]
    struct Cache(BTreeSet<u64>);

    impl Cache {
        fn miss(&mut self, index: u64, nr_pages: u64, pattern: Pattern) -> Range<u64> {
            let question = ReadaheadQuestion { index, nr_pages, most_pages: MOST, pattern };
            let mut nr_looks = 0;
            let read = window(&question, &mut |page| {
                nr_looks += 1;
                self.0.contains(&page)
            });
            assert!(nr_looks <= 10 && read.start == index && read.end > index && read.end - index < 2 * MOST);
            self.0.extend(read.clone());
            read
        }

        /// The lengths of the windows of a stream, from `index` on.
        fn stream(&mut self, mut index: u64, nr_windows: usize) -> Vec<u64> {
            (0..nr_windows)
                .map(|_| {
                    let read = self.miss(index, u64::MAX, Pattern::Normal);
                    index = read.end;
                    read.end - read.start
                })
                .collect()
        }
    }

    #[test]
    fn a_stream_has_full_windows_at_its_fourth_miss() {
        for start in [0, 1, 5, 63, 1000, 1001, 4095, 123_456_789] {
            let lengths = Cache::default().stream(start, 8);
            assert!(lengths[3..].iter().all(|len| *len >= MOST), "{start}: {lengths:?}");
            assert!(lengths[4..].iter().all(|len| *len == MOST), "{start}: {lengths:?}");
        }
        assert_eq!(Cache::default().stream(0, 6), [4, 28, 224, 256, 256, 256]);
    }

    #[test]
    fn random_reads_change_nothing_for_a_stream() {
        let mut cache = Cache::default();
        let mut page = 12_345u64;
        for _ in 0..10_000 {
            page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let read = cache.miss(page >> 20 | 1 << 40, u64::MAX, Pattern::Normal);
            assert!(read.end - read.start <= 8);
        }
        assert_eq!(cache.stream(0, 5)[4], MOST);
    }

    #[test]
    fn two_streams_keep_their_windows() {
        let mut cache = Cache::default();
        let mut at = [0, 1 << 30];
        for turn in 0..16 {
            let read = cache.miss(at[turn % 2], u64::MAX, Pattern::Normal);
            assert!(turn < 8 || read.end - read.start == MOST);
            at[turn % 2] = read.end;
        }
    }

    /// A stream whose reads end before it comes to their pages.
    #[test]
    fn a_stream_with_marks_finds_its_pages() {
        let mut cache = Cache::default();
        let (mut nr_missing, mut nr_windows) = (0, 0);
        for page in 0..10_000 {
            let question =
                ReadaheadQuestion { index: page, nr_pages: 10_000, most_pages: MOST, pattern: Pattern::Normal };
            if !cache.0.contains(&page) {
                nr_missing += 1;
                cache.miss(page, 10_000, Pattern::Normal);
            }
            let mut nr_looks = 0;
            let next = next_window(&question, &mut |page| {
                nr_looks += 1;
                cache.0.contains(&page)
            });
            assert!(nr_looks <= if next.is_some() { 40 } else { 11 }, "{nr_looks}");
            if let Some(next) = next {
                assert!(next.start == page + MOST / EARLY && next.end % MOST == 0 || next.end == 10_000, "{next:?}");
                nr_windows += 1;
                cache.0.extend(next);
            }
        }
        assert_eq!((nr_missing, nr_windows), (4, 38), "the window grows; then the next one is always there");
        assert_eq!(cache.0.len(), 10_000);
    }

    #[test]
    fn nothing_is_begun_early_for_others() {
        let ask = |index, there: &dyn Fn(u64) -> bool, pattern| {
            let question = ReadaheadQuestion { index, nr_pages: 10_000, most_pages: MOST, pattern };
            next_window(&question, &mut |page| there(page))
        };
        let up_to_1024 = |page: u64| page < 1024;
        assert_eq!(ask(1000, &up_to_1024, Pattern::Normal), Some(1024..1280));
        assert_eq!(ask(1000, &up_to_1024, Pattern::Random), None, "advice");
        assert_eq!(ask(900, &up_to_1024, Pattern::Normal), None, "too early");
        assert_eq!(ask(1000, &|page| page == 1000, Pattern::Normal), None, "a single page");
        assert_eq!(ask(1000, &|page| (800..1010).contains(&page), Pattern::Normal), None, "not long enough");
        assert_eq!(ask(1030, &up_to_1024, Pattern::Normal), None, "it is missing itself");
        assert_eq!(ask(9_999, &|_| true, Pattern::Normal), None, "the end of the file");
        assert_eq!(ask(9_990, &|page| page < 9_995, Pattern::Normal), Some(9_995..10_000));
    }

    #[test]
    fn advice_and_the_end_of_the_file() {
        let mut cache = Cache::default();
        assert_eq!(cache.miss(7, 1000, Pattern::Random), 7..8);
        assert_eq!(cache.miss(512, 1000, Pattern::Sequential), 512..768);
        assert_eq!(cache.miss(998, 1000, Pattern::Normal), 998..1000);
        assert_eq!(cache.miss(999, 999, Pattern::Normal), 999..1000, "it became smaller");
        let small = ReadaheadQuestion { index: 3, nr_pages: 9, most_pages: 0, pattern: Pattern::Sequential };
        assert_eq!(window(&small, &mut |_| true), 3..4);
    }
}
