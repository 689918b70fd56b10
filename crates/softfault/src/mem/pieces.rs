//! Arrays in pieces, each of which lies where there was room, or is not there: descriptors and
//! blocks of sections (`frame/sections.rs`).
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
/// on so far down, wrapping around. Where the bit is clear, there is no piece, and the word is
/// the number of the next one, times two.
const HERE: u64 = 1;

/// The address at which an element lies that is in the same piece as one that was found.
pub struct Near<T> {
    origin: usize,
    of: PhantomData<T>,
}

impl<T> Near<T> {
    #[inline(always)]
    fn addr(&self, i: usize) -> usize {
        self.origin.wrapping_add(i.wrapping_mul(size_of::<T>()))
    }
    /// Element `i`.
    ///
    /// # Safety
    ///
    /// I5, I50: it is one of the piece.
    #[inline(always)]
    unsafe fn element<'a>(&self, i: usize) -> &'a T {
        // SAFETY: I1, I5: the caller's promise.
        unsafe { &*core::ptr::with_exposed_provenance::<T>(self.addr(i)) }
    }
    /// Asks for the line of element `i` as `prefetch` does; there need be no such element.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        prefetch_addr(self.addr(i));
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
        assert!(places.len >= Self::nr_pieces(len) && align_of::<T>() > HERE as usize);
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
    /// Element `i`, if its piece is there. The word of a piece is read by all and written when
    /// memory comes or goes: a line in each cache.
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
        let place = sync::look(unsafe { &*self.places.base.as_ptr().add(i >> SHIFT) });
        if place & HERE == 0 {
            return None;
        }
        let near = Near { origin: place.wrapping_sub(HERE) as usize, of: PhantomData };
        // SAFETY: I1, I5, I50: `put` was given an array of `len_of` elements, and i is one of
        // them.
        let found = unsafe { near.element(i) };
        Some((found, near))
    }
    /// Elements `i..i + nr`, if they are of one piece, which is there.
    #[inline(always)]
    pub fn run(&self, i: usize, nr: usize) -> Option<&[T]> {
        let first = self.get(i)?;
        let is_in_one = nr <= self.len - i && (i & ((1 << SHIFT) - 1)) + nr <= 1 << SHIFT;
        // SAFETY: I1, I5, I50: as in `get`; the elements of a piece lie beside each other.
        is_in_one.then(|| unsafe { core::slice::from_raw_parts(first, nr) })
    }
    /// Piece `p`, if it is there.
    #[cfg(any(test, feature = "hooks"))]
    pub fn piece(&self, p: usize) -> Option<FrameArray<T>> {
        let first = core::ptr::from_ref(self.get(p << SHIFT)?).cast_mut();
        Some(FrameArray { base: NonNull::new(first)?, len: self.len_of(p), words: PhantomData })
    }
    /// Piece `p` is this array from now on. What was written to it before is seen by whoever
    /// finds it.
    ///
    /// # Panics
    ///
    /// If the array has too few elements.
    pub fn put(&self, p: usize, array: &FrameArray<T>) {
        assert!(array.len >= self.len_of(p));
        let origin = array.base.as_ptr().expose_provenance().wrapping_sub((p << SHIFT) * size_of::<T>());
        self.places.at(p).store(origin as u64 | HERE, Ordering::Release);
    }
    /// Piece `p` is nowhere from now on; the next that is there is `next`, or none if it is
    /// the number of pieces.
    pub fn leave_out(&self, p: usize, next: usize) {
        self.places.at(p).store((next as u64) << 1, Ordering::Release);
    }
    /// The first piece from `p` on that is there.
    pub fn next_piece(&self, p: usize) -> Option<usize> {
        let place = sync::look(self.places.get(p)?);
        match place & HERE {
            0 => Some((place >> 1) as usize).filter(|next| *next > p && *next < self.places.len),
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
        Cursor { pieces, first: 0, len: 0, near: Near { origin: 0, of: PhantomData } }
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
