//! Arrays in pieces, each of which lies anywhere or is absent: descriptors and blocks of memory sections
//! (`frame/mem_sections.rs`). Of a piece that is *apart*, some elements lie elsewhere: its owner knows
//! where (`frame/tail_descs.rs`), and `get` finds none of it.
//!
//! One of the few modules with `unsafe`, for the reason that `mem.rs` gives: a place that is out
//! of date leads to numbers that are.
#![allow(unsafe_code)]

use super::{FrameArray, Words, prefetch_addr};
use crate::sync::{self, Ordering, Word};
use core::marker::PhantomData;
#[cfg(any(test, feature = "hooks"))]
use core::ptr::NonNull;

/// An array of `T` in pieces of 2^SHIFT elements, each of which lies where there was room, or
/// nowhere. A word per piece says where.
pub struct Pieces<T, const SHIFT: u32> {
    places: FrameArray<Word>,
    len: usize,
    words: PhantomData<T>,
}

/// In the word of a piece: the rest is the address at which element 0 would lie if the piece went
/// on so far down, wrapping around. The pointer to an element is that to the words, moved there: one
/// pointer leads to all memory of a machine (I1).
const HERE: u64 = 1;
/// In its place: the same, but some elements lie elsewhere. A search for one bit only finds no
/// element, and asks; so a piece that is not apart costs no look at this one.
const APART: u64 = 2;
/// Where both are clear there is no piece: the word is the number of the next one, so far up, in so
/// many bits.
const NEXT_SHIFT: u32 = 3;
const NEXT_MASK: u64 = (1 << 28) - 1;
/// There will be one: it is the one of that rank among those that have a place.
const LATER: u64 = 4;
const RANK_SHIFT: u32 = 32;

/// Where an element lies that is in the same piece as one that was found.
pub struct Near<T> {
    /// Where element 0 would lie.
    origin: *const T,
}

impl<T> Near<T> {
    /// Element `i`.
    ///
    /// # Safety
    ///
    /// I5, I50: it is one of the piece.
    #[inline(always)]
    unsafe fn element<'a>(&self, i: usize) -> &'a T {
        // SAFETY: I1, I5: the caller's promise.
        unsafe { &*self.origin.wrapping_add(i) }
    }
    /// Where element `i` would lie.
    pub fn place_of(&self, i: usize) -> usize {
        self.origin.wrapping_add(i).addr()
    }
    /// Asks for the line of element `i` as `prefetch` does; there need be no such element.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        prefetch_addr(self.place_of(i));
    }
}

impl<T: Words, const SHIFT: u32> Pieces<T, SHIFT> {
    /// Pieces of an array of `len`.
    pub const fn nr_pieces(len: usize) -> usize {
        len.div_ceil(1 << SHIFT)
    }
    /// An array of `len` with these words, which begin as zeroes.
    ///
    /// # Panics
    ///
    /// If there are not enough words.
    pub fn over(places: FrameArray<Word>, len: usize) -> Self {
        assert!(places.len >= Self::nr_pieces(len) && align_of::<T>() > (HERE | APART) as usize);
        Pieces { places, len, words: PhantomData }
    }
    /// Number of elements, those of no piece included.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Elements of piece `p`: the last may have fewer.
    pub fn len_of(&self, p: usize) -> usize {
        (self.len - (p << SHIFT)).min(1 << SHIFT)
    }
    /// The neighbours in the piece of which the word has this address.
    #[inline(always)]
    fn near(&self, origin: u64) -> Near<T> {
        Near { origin: self.places.base.as_ptr().cast_const().cast::<T>().with_addr(origin as usize) }
    }
    /// Element `i`, if its piece is there and not apart. The word of a piece is read by all and
    /// written when memory comes or goes: a line in each cache.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Option<&T> {
        self.get_near(i).map(|(found, _)| found)
    }
    /// The same, and where its neighbours are.
    #[inline(always)]
    pub fn get_near(&self, i: usize) -> Option<(&T, Near<T>)> {
        if i >= self.len {
            return None;
        }
        // SAFETY: I1, I5: `over` has seen that there is a word for each piece below `len`.
        let place = sync::read_mostly(unsafe { &*self.places.base.as_ptr().add(i >> SHIFT) });
        if place & HERE == 0 {
            return None;
        }
        let near = self.near(place.wrapping_sub(HERE));
        // SAFETY: I1, I5, I50: `put` was given an array of `len_of` elements, and i is one of
        // them.
        let found = unsafe { near.element(i) };
        Some((found, near))
    }
    /// Where element `i` would lie, and its neighbours, if its piece is there: apart or not.
    pub fn find_near(&self, i: usize) -> Option<Near<T>> {
        let place = sync::read_mostly(self.places.get(i >> SHIFT).filter(|_| i < self.len)?);
        let is_there = place & (HERE | APART) != 0;
        is_there.then_some(self.near(place & !(HERE | APART)))
    }
    /// Element `i` where the piece has its elements, apart or not: the caller knows that this one is
    /// there, or reads a number that is out of date.
    pub fn get_in_place(&self, i: usize) -> Option<&T> {
        // SAFETY: I1, I5, I50: as in `get_near`: the frames of a piece are the machine's.
        self.find_near(i).map(|near| unsafe { near.element(i) })
    }
    /// Whether the piece of element `i` is there.
    pub fn is_there(&self, i: usize) -> bool {
        self.find_near(i).is_some()
    }
    /// Makes piece `p`, which is there, apart for ever. A CPU that finds that sees all that was written
    /// before.
    pub fn take_apart(&self, p: usize) {
        let place = self.places.at(p);
        let seen = sync::read_mostly(place);
        if seen & HERE != 0 {
            // Nobody else changes the word of a piece that is there.
            place.store((seen & !HERE) | APART, Ordering::Release);
        }
    }
    /// Whether piece `p` is apart.
    pub fn is_apart(&self, p: usize) -> bool {
        self.places.get(p).is_some_and(|place| sync::read_mostly(place) & APART != 0)
    }
    /// Elements `i..i + nr`, if they are of one piece, which is there and not apart.
    #[inline(always)]
    pub fn run(&self, i: usize, nr: usize) -> Option<&[T]> {
        let (_, near) = self.get_near(i)?;
        let is_in_one = nr <= self.len - i && (i & ((1 << SHIFT) - 1)) + nr <= 1 << SHIFT;
        // SAFETY: I1, I5, I50: as in `get`; the elements of a piece lie beside each other.
        is_in_one.then(|| unsafe { core::slice::from_raw_parts(near.origin.wrapping_add(i), nr) })
    }
    /// Piece `p`, if it is there.
    #[cfg(any(test, feature = "hooks"))]
    pub fn piece(&self, p: usize) -> Option<FrameArray<T>> {
        let first = self.find_near(p << SHIFT)?.origin.wrapping_add(p << SHIFT);
        Some(FrameArray { base: NonNull::new(first.cast_mut())?, len: self.len_of(p), words: PhantomData })
    }
    /// Makes this array piece `p`. All that was written to it before is seen by a CPU that
    /// finds it.
    ///
    /// # Panics
    ///
    /// If the array has too few elements.
    pub fn put(&self, p: usize, array: &FrameArray<T>) {
        assert!(array.len >= self.len_of(p));
        let origin = array.base.as_ptr().wrapping_sub(p << SHIFT).addr();
        self.places.at(p).store(origin as u64 | HERE, Ordering::Release);
    }
    /// Piece `p` is nowhere from now on; the next that is there is `next`, or none if it is
    /// the number of pieces.
    pub fn leave_out(&self, p: usize, next: usize) {
        let place = self.places.at(p);
        let kept = if self.deferred(p).is_some() { sync::read_mostly(place) & !(NEXT_MASK << NEXT_SHIFT) } else { 0 };
        place.store((next as u64) << NEXT_SHIFT | kept, Ordering::Release);
    }
    /// The same; the piece will come, with the place of that rank.
    pub fn leave_for_later(&self, p: usize, next: usize, rank: usize) {
        let word = (next as u64) << NEXT_SHIFT | LATER | (rank as u64) << RANK_SHIFT;
        self.places.at(p).store(word, Ordering::Release);
    }
    /// The rank of piece `p`, if it is deferred.
    pub fn deferred(&self, p: usize) -> Option<u32> {
        let place = sync::read_mostly(self.places.get(p)?);
        (place & (HERE | APART | LATER) == LATER).then_some((place >> RANK_SHIFT) as u32)
    }
    /// The first piece from `p` on that is there.
    pub fn next_piece(&self, p: usize) -> Option<usize> {
        let place = sync::read_mostly(self.places.get(p)?);
        match place & (HERE | APART) {
            0 => Some((place >> NEXT_SHIFT & NEXT_MASK) as usize).filter(|next| *next > p && *next < self.places.len),
            _ => Some(p),
        }
    }
    /// The number of the element in which an address lies, and where in it.
    #[cfg(any(test, feature = "hooks"))]
    pub fn find_addr(&self, addr: usize) -> Option<(usize, usize)> {
        let mut from = 0;
        while let Some(p) = self.next_piece(from) {
            let piece = self.piece(p)?;
            let offset = addr.wrapping_sub(piece.base.as_ptr().addr());
            if offset < piece.len * size_of::<T>() {
                return Some(((p << SHIFT) + offset / size_of::<T>(), offset % size_of::<T>()));
            }
            from = p + 1;
        }
        None
    }
}

/// Remembers the piece that was last looked into: for passes that find many elements in the same
/// one, which then cost no look at its word.
pub struct Cursor<'a, T, const SHIFT: u32> {
    pieces: &'a Pieces<T, SHIFT>,
    first: usize,
    len: usize,
    near: Near<T>,
}

impl<'a, T: Words, const SHIFT: u32> Cursor<'a, T, SHIFT> {
    /// Has looked nowhere yet.
    pub fn new(pieces: &'a Pieces<T, SHIFT>) -> Self {
        Cursor { pieces, first: 0, len: 0, near: Near { origin: core::ptr::null() } }
    }
    /// Element `i`, if its piece is there. The caller has a reason why the piece that it looked
    /// into last is there still.
    #[inline(always)]
    pub fn get(&mut self, i: usize) -> Option<&'a T> {
        if i.wrapping_sub(self.first) < self.len {
            // SAFETY: I1, I5, I50: as in `Pieces::get`; i is in the piece that was found there.
            return Some(unsafe { self.near.element(i) });
        }
        self.look(i)
    }
    #[cold]
    #[inline(never)]
    fn look(&mut self, i: usize) -> Option<&'a T> {
        let (found, near) = self.pieces.get_near(i)?;
        let p = i >> SHIFT;
        (self.first, self.len, self.near) = (p << SHIFT, self.pieces.len_of(p), near);
        Some(found)
    }
}
