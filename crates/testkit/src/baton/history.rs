//! The values that each page may hold: a history of stores and removals with the times
//! at which they began and ended.
//!
//! A value may be seen if it was stored before the look ended, and nothing that
//! certainly took effect lies wholly between that store and the look. So a value whose
//! store has returned is there unless a removal overlapped.
//!
//! A page of a private mapping of a file shows its copy, or what the file's page shows. A copy is made by a store
//! or a pin: until it is written it shows what the file's page had then.

use softfault::FaultError;

/// A moment: operations of one actor follow each other, those of several overlap.
pub(super) type Time = u64;
const NOT_YET: Time = Time::MAX;

/// A store (`value` other than 0) or a removal.
#[derive(Clone, Copy, Debug)]
struct Event {
    value: u64,
    begin: Time,
    end: Time,
    /// It took effect, whatever else happened.
    is_certain: bool,
    /// Looks that begin later do not see it.
    until: Time,
    /// The page has left its object: what goes through a pin goes elsewhere.
    removes: bool,
}

/// The value of an event that copies the page behind.
const COPY: u64 = u64::MAX >> 1;

#[derive(Default)]
struct Page {
    events: Vec<Event>,
    /// The page of a file that is shown where there is no private copy.
    behind: Option<usize>,
    /// When the page may be refused.
    barred: Vec<(Time, Time)>,
}

/// Names an event that is under way.
#[derive(Clone, Copy)]
pub(super) struct Id(usize, usize);

/// Histories of all pages.
pub(super) struct History {
    now: Time,
    pages: Vec<Page>,
    /// Stores until then may have gone to a page that is lost.
    doubtful: Option<(Time, Time)>,
    /// Frames may be refused.
    pub(super) is_starved: bool,
    /// Reads of the file may fail.
    pub(super) reads_fail: bool,
    pub(super) problems: Vec<String>,
    notes: Vec<String>,
}

impl History {
    pub(super) fn new(nr_pages: usize) -> History {
        let empty = Event { value: 0, begin: 0, end: 0, is_certain: true, until: NOT_YET, removes: true };
        let pages = (0..nr_pages).map(|_| Page { events: vec![empty], ..Page::default() }).collect();
        let (problems, notes) = (Vec::new(), Vec::new());
        History { now: 1, pages, doubtful: None, is_starved: false, reads_fail: false, problems, notes }
    }

    /// Sets the first value of a page.
    pub(super) fn has_at_first(&mut self, page: usize, value: u64) {
        self.pages[page].events[0].value = value;
    }

    /// The page shows that one until it has a copy.
    pub(super) fn is_before(&mut self, page: usize, behind: usize) {
        self.pages[page].behind = Some(behind);
    }

    pub(super) fn tick(&mut self) -> Time {
        self.now += 1;
        self.now
    }

    /// The events, for the report of a problem.
    pub(super) fn note(&mut self, what: String) {
        self.notes.push(format!("{}: {what}", self.now));
    }

    pub(super) fn notes(&self) -> String {
        self.notes.join("; ")
    }

    /// A store (or, with 0, a removal) begins.
    pub(super) fn begin(&mut self, page: usize, value: u64) -> Id {
        let begin = self.tick();
        self.begin_at(page, value, begin)
    }

    /// A removal begins after which a page shows `value`, which its file has.
    pub(super) fn begin_removal(&mut self, page: usize, value: u64) -> Id {
        let Id(page, i) = self.begin(page, value);
        self.pages[page].events[i].removes = true;
        Id(page, i)
    }

    /// The page behind may be copied from now on, if there is one.
    pub(super) fn begin_copy(&mut self, page: usize) -> Option<Id> {
        self.pages[page].behind.is_some().then(|| self.begin(page, COPY))
    }

    /// The copy was made by now, or not, and may be `written` over.
    pub(super) fn end_copy(&mut self, id: Option<Id>, written: bool) {
        let Some(Id(page, i)) = id else { return };
        let now = self.tick();
        let event = &mut self.pages[page].events[i];
        (event.end, event.until) = (now, if written { now } else { NOT_YET });
    }

    /// The same, through a pin that was taken at `since`: it may go to a page that a
    /// removal, or a move that left it behind, has taken from there meanwhile.
    pub(super) fn begin_through_pin(&mut self, page: usize, value: u64, since: Time) -> Id {
        let is_left_behind = self.doubtful.is_some_and(|(_, to)| to > since);
        let may_be_gone = self.pages[page].events.iter().any(|e| e.removes && e.end > since);
        let begin = if is_left_behind || may_be_gone { since } else { self.tick() };
        self.begin_at(page, value, begin)
    }

    fn begin_at(&mut self, page: usize, value: u64, begin: Time) -> Id {
        let (is_certain, removes) = (false, value == 0);
        self.pages[page].events.push(Event { value, begin, end: NOT_YET, is_certain, until: NOT_YET, removes });
        Id(page, self.pages[page].events.len() - 1)
    }

    /// It ended, and certainly took effect or not.
    pub(super) fn end(&mut self, Id(page, i): Id, is_certain: bool) {
        let end = self.tick();
        let event = &mut self.pages[page].events[i];
        let doubtful = self.doubtful.is_some_and(|(from, to)| event.begin < to && end > from && event.value != 0);
        event.end = end;
        event.is_certain = is_certain && !doubtful;
    }

    /// It ended and did nothing.
    pub(super) fn cancel(&mut self, Id(page, i): Id) {
        let event = &mut self.pages[page].events[i];
        (event.end, event.until) = (event.begin, 0);
    }

    /// Pages may be refused from now on, until [`admit`](Self::admit).
    pub(super) fn bar(&mut self, pages: impl Iterator<Item = usize>) {
        let now = self.tick();
        pages.for_each(|page| self.pages[page].barred.push((now, NOT_YET)));
    }

    pub(super) fn admit(&mut self, pages: impl Iterator<Item = usize>) {
        let now = self.tick();
        pages.for_each(|page| {
            let open = self.pages[page].barred.iter_mut().rev().find(|(_, end)| *end == NOT_YET);
            open.into_iter().for_each(|bar| bar.1 = now);
        });
    }

    /// A move that leaves the old place mapped has begun: stores that overlap it may
    /// go to the page that stays behind.
    pub(super) fn begin_doubt(&mut self) {
        let now = self.tick();
        self.doubtful = Some((now, NOT_YET));
    }

    pub(super) fn end_doubt(&mut self) {
        let now = self.tick();
        let Some((from, _)) = self.doubtful else { return };
        self.doubtful = Some((from, now));
        for page in &mut self.pages {
            let overlapping = page.events.iter_mut().filter(|e| e.value != 0 && e.end > from);
            overlapping.for_each(|e| e.is_certain = false);
            // A look at the old place saw the page that stayed behind.
            let (is_certain, removes) = (false, true);
            page.events.push(Event { value: 0, begin: from, end: now, is_certain, until: now, removes });
        }
    }

    /// A look from `begin` to now saw `value`.
    pub(super) fn saw(&mut self, page: usize, value: u64, begin: Time, end: Time, what: &str) {
        let doubt = self.doubtful.is_some_and(|(from, to)| begin < to && end > from);
        if value == 0 && doubt {
            return;
        }
        if !self.shows(page, value, (begin, end)) {
            let last = |page: usize| self.pages[page].events.iter().rev().take(6).collect::<Vec<_>>();
            let behind = self.pages[page].behind.map(last);
            let text = format!("{what}: page {page} shows {value:#x} at {begin}..{end}; last: {:?}", last(page));
            self.problems.push(format!("{text}, behind it: {behind:?}"));
        }
    }

    fn shows(&self, page: usize, value: u64, (begin, end): (Time, Time)) -> bool {
        let Some(behind) = self.pages[page].behind else { return self.explaining(page, value, (begin, end)).is_some() };
        // A child may look at the file's page later than at what it got by the fork.
        let file_shows = |begin: Time, end: Time| self.explaining(behind, value, (begin, end)).is_some();
        value != 0 && self.explaining(page, value, (begin, end)).is_some()
            || self.explaining(page, 0, (begin, end)).is_some() && file_shows(begin, self.now + 1)
            || self.all_explaining(page, COPY, (begin, end)).any(|e| file_shows(e.begin, e.end.min(self.now + 1)))
    }

    fn explaining(&self, page: usize, value: u64, window: (Time, Time)) -> Option<&Event> {
        self.all_explaining(page, value, window).next()
    }

    /// The events by which a look in that time may see `value`.
    fn all_explaining(&self, page: usize, value: u64, (begin, end): (Time, Time)) -> impl Iterator<Item = &Event> {
        let events = &self.pages[page].events;
        let explains = move |e: &&Event| e.value == value && e.begin < end && begin < e.until;
        let overwritten = move |e: &Event| events.iter().any(|x| x.is_certain && x.begin > e.end && x.end < begin);
        events.iter().filter(explains).filter(move |e| !overwritten(e))
    }

    /// An access from `begin` to now was refused.
    pub(super) fn refused(&mut self, page: usize, begin: Time, why: FaultError, what: &str) {
        let end = self.tick();
        let is_barred = self.pages[page].barred.iter().any(|(from, to)| *from < end && begin < *to);
        let is_excused = match why {
            FaultError::OutOfFrames => self.is_starved,
            FaultError::NotRead => self.reads_fail && self.reads_file(page),
            _ => false,
        };
        if !(is_barred || is_excused) {
            self.problems.push(format!("{what}: page {page} was refused at {begin}..{end}: {why:?}"));
        }
    }

    fn reads_file(&self, page: usize) -> bool {
        self.pages[page].behind.is_some() || self.pages.iter().any(|other| other.behind == Some(page))
    }
}
