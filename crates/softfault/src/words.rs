//! Which structures consist of words alone: the promise of I5, in one place.
#![allow(unsafe_code)]

use crate::account::rss::RssLine;
use crate::base::HugetlbMutex;
use crate::cpu::{CpuData, HintData};
use crate::frame::{BlockData, FrameCache, FrameDesc, SubpoolData, SummaryRow};
use crate::mem::Words;
use crate::notify::NotifyLine;
use crate::rmap::family::FamilyData;
use crate::section::visit::CpusLine;
use crate::source::members::{MemberData, Shard};
use crate::source::object::ObjectData;
use crate::space::{GlobalLine, LimitsData, MembersLine, RssFrames, SpaceData, WriterLine};
use crate::swap::area::SlotData;

macro_rules! words {
    ($($name:ty),* $(,)?) => {
        $(
            // SAFETY: I5: repr(C), every field a Word, an array of Words or a
            // type of this list; the sizes below leave no room for padding.
            unsafe impl Words for $name {}
            const _: () = assert!(size_of::<$name>() % align_of::<$name>() == 0);
        )*
    };
}

words!(
    BlockData,
    CpuData,
    CpusLine,
    FamilyData,
    FrameDesc,
    GlobalLine,
    FrameCache,
    HintData,
    HugetlbMutex,
    LimitsData,
    MemberData,
    MembersLine,
    NotifyLine,
    ObjectData,
    RssFrames,
    RssLine,
    Shard,
    SlotData,
    SpaceData,
    SubpoolData,
    SummaryRow,
    WriterLine,
);
