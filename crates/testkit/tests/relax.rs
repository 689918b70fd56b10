//! Interleavings at the core's waits: see `softfault_testkit::baton`.

use softfault_testkit::baton::{Deed, PoolDeed, PoolRound, Round, Schedule};

/// Rounds of three actors with random deeds.
const NR_ROUNDS: u64 = 650;
/// Decisions that are tried in all ways.
const DEPTH: usize = 4;
/// Of a pair's rounds one in each so many reads all free frames.
const ROUNDS_PER_READING: u64 = 8;
/// Rounds of a pair in which the first goes on to its end.
const NR_ENDS: u64 = 12;
/// Allocations after which one fails, for each pair.
const NR_FAILING: u64 = 12;

#[test]
fn three_actors_take_turns() {
    for seed in 0..NR_ROUNDS {
        if let Err(problem) = Round::random(seed).play() {
            panic!("{problem}");
        }
    }
}

#[test]
fn a_seed_repeats_its_round() {
    let round = Round::random(3);
    assert_eq!(round.play(), round.play());
}

/// The next list of decisions, given how many choices each of the last list had.
fn next(list: &[usize], choices: &[usize]) -> Option<Vec<usize>> {
    let mut list = list[..list.len().min(choices.len())].to_vec();
    while let Some(last) = list.pop() {
        if last + 1 < choices[list.len()] {
            list.push(last + 1);
            list.resize(DEPTH, 0);
            return Some(list);
        }
    }
    None
}

/// Plays one operation against another, each followed by a look: round `nr` of this
/// pair.
fn meet((pair, first, second): (u64, Deed, Deed), nr: u64, list: &[usize], frames_left: Option<u64>) -> Vec<usize> {
    let schedule = Schedule::Listed(list.to_vec());
    let deeds = vec![vec![first, Deed::Look], vec![second, Deed::Look]];
    let reads_free = nr.is_multiple_of(ROUNDS_PER_READING);
    let round = Round { deeds, seed: pair, schedule, frames_left, reads_free };
    round.play().unwrap_or_else(|problem| panic!("{problem}"))
}

/// All pairs, twice: they meet at a private page, and at one of the object. With a
/// number for each.
fn pairs() -> impl Iterator<Item = (u64, Deed, Deed)> {
    let all = Deed::ALL.iter().flat_map(|first| Deed::AGAINST.map(|second| (*first, second)));
    let twice = all.flat_map(|pair| [pair; 2]);
    twice.enumerate().map(|(i, (first, second))| (i as u64, first, second))
}

#[test]
fn each_operation_meets_each_other_at_its_first_waits() {
    let mut nr_rounds = 0;
    for pair in pairs() {
        let mut list = Some(vec![0; DEPTH]);
        while let Some(now) = list {
            let choices = meet(pair, nr_rounds, &now, None);
            nr_rounds += 1;
            list = next(&now, &choices);
        }
    }
    assert!(nr_rounds > 1000, "{nr_rounds} rounds");
}

/// The second has some turns, and then the first goes on to its end: from the beginning
/// and at later waits, each time with another machine and other pages.
#[test]
fn each_operation_meets_each_other_at_an_end() {
    for (number, first, second) in pairs() {
        for k in 0..NR_ENDS {
            let nr_waits = if k < NR_ENDS / 2 { 0 } else { 3 * k as usize };
            let mut list = vec![0; nr_waits];
            list.extend(vec![1; 1 + k as usize % 2]);
            list.push(0);
            meet((number + k * 1000, first, second), number + k, &list, None);
        }
    }
}

#[test]
fn each_operation_meets_each_other_while_the_kth_allocation_fails() {
    for pair in pairs() {
        for k in 0..NR_FAILING {
            // Another order for each k, and for each pair.
            let list: Vec<usize> = (0..DEPTH).map(|i| (k + pair.0) as usize >> i & 1).collect();
            meet(pair, pair.0 + k, &list, Some(k));
        }
    }
}

/// All pairs of operations on pools.
fn pairs_of_pools() -> impl Iterator<Item = (u64, Vec<Vec<PoolDeed>>)> {
    let all = PoolDeed::ALL.iter().flat_map(|first| PoolDeed::ALL.map(|second| (*first, second)));
    // At the end each stores to the pages that a deed of the other one may have taken.
    let then = [PoolDeed::StoreShared, PoolDeed::StoreOwn];
    let deeds = move |(first, second)| vec![vec![first, then[0], then[1]], vec![second, then[1], then[0]]];
    all.enumerate().map(move |(i, pair)| (i as u64, deeds(pair)))
}

#[test]
fn operations_on_pools_meet_each_other_at_their_first_waits() {
    let mut nr_rounds = 0;
    for (seed, deeds) in pairs_of_pools() {
        let mut list = Some(vec![0; DEPTH]);
        while let Some(now) = list {
            let schedule = Schedule::Listed(now.clone());
            let round = PoolRound { deeds: deeds.clone(), seed, schedule, frames_left: None };
            let choices = round.play().unwrap_or_else(|problem| panic!("{problem}"));
            nr_rounds += 1;
            list = next(&now, &choices);
        }
    }
    assert!(nr_rounds > 500, "{nr_rounds} rounds");
}

#[test]
fn operations_on_pools_meet_each_other_while_the_kth_allocation_fails() {
    for (seed, deeds) in pairs_of_pools() {
        for k in 0..NR_FAILING {
            let list: Vec<usize> = (0..DEPTH).map(|i| (k + seed) as usize >> i & 1).collect();
            let round =
                PoolRound { deeds: deeds.clone(), seed, schedule: Schedule::Listed(list), frames_left: Some(k) };
            round.play().unwrap_or_else(|problem| panic!("{problem}"));
        }
    }
}

#[test]
fn three_actors_take_turns_on_a_pool() {
    for seed in 0..NR_ROUNDS / 2 {
        PoolRound::random(seed).play().unwrap_or_else(|problem| panic!("{problem}"));
    }
}

/// Files of the core that have operations.
const FILES: [&str; 23] = [
    "fault/mod.rs",
    "pin/mod.rs",
    "space/access.rs",
    "space/limits.rs",
    "source/handle.rs",
    "source/hole.rs",
    "source/create.rs",
    "source/explicit.rs",
    "notify/lookup.rs",
    "notify/age.rs",
    "frame/ahead.rs",
    "hooks/drop_clean.rs",
    "hooks/split.rs",
    "khugepaged.rs",
    "shrink.rs",
    "compact/mod.rs",
    "compact/evict.rs",
    "compact/migrate.rs",
    "compact/offline.rs",
    "compact/soft_offline.rs",
    "compact/poison.rs",
    "compact/swap_out.rs",
    "space/ops",
];

/// Operations that no deed has, and why.
const LEFT_OUT: [(&str, &str); 70] = [
    ("pin_page", "pin_page_mut, without the right to write"),
    ("pin_range", "pin_page for each page"),
    ("pin_range_mut", "pin_page_mut for each page"),
    ("fetch", "read, with another right"),
    ("read_forced", "read, with no right; a fault that asks for none"),
    ("pagemap", "smaps, one page at a time"),
    ("update_u32", "write, with another store in the section"),
    ("collapse", "what MADV_COLLAPSE does to each stretch"),
    ("mmap_object", "mmap: the object's count is all that differs; shared_objects.rs"),
    ("new_shared_object", "nobody else knows it yet"),
    ("zero", "stores of a call: shared_objects.rs"),
    ("make_hole", "zero and discard: file_late_calls.rs"),
    ("next_resident", "reads an object in sections"),
    ("next_poisoned", "reads an object in sections"),
    ("nr_resident_pages", "reads an object in sections"),
    ("nr_swapped_pages", "reads an object in sections"),
    ("id", "reads one word"),
    ("size_bytes", "reads one word"),
    ("is_mapped", "reads one word"),
    ("nr_mapped_pages", "reads one word"),
    ("nr_writable_pages", "reads one word"),
    ("nr_locked_pages", "reads one word"),
    ("nr_vmas", "reads one word"),
    ("free_tail_descs", "waits as discard does, with no frames: tail_descs.rs"),
    ("restore_tail_descs", "one allocation, and a lock: tail_descs.rs"),
    ("set_brk", "called before the program runs"),
    ("nr_data_pages", "reads one word"),
    ("max_map_count", "reads one word"),
    ("set_max_map_count", "writes one word"),
    ("set_limit_as", "writes one word"),
    ("set_limit_data", "writes one word"),
    ("set_limit_memlock", "writes one word"),
    ("set_limit_stack", "writes one word"),
    ("mmap_zero", "mmap: a flag of the VMA and its offset are all that differs"),
    ("new_shared_object_of", "new_shared_object: a word of the header is all that differs"),
    ("new_file_object", "nobody else knows it yet"),
    ("reserve", "what mmap does with an object of a pool: hugetlb/allocate.rs"),
    ("extend", "reserve, a larger size, allocate: hugetlb/allocate.rs"),
    ("allocate", "PoolDeed::Allocate"),
    ("new_hugetlb_object", "nobody else knows it yet"),
    ("set_nr_hugepages", "PoolDeed::Resize"),
    ("set_nr_overcommit_hugepages", "PoolDeed::Overcommit"),
    ("demote_hugepages", "one allocation of a frame after the other, and two locks: hugetlb.rs"),
    ("hugetlb_counts", "reads some words"),
    ("new_explicit_object", "nobody else knows it yet"),
    ("new_foreign_object", "a count, and new_shared_object: explicit/foreign.rs"),
    ("begin_install", "a write of a missing page, and no fill of the machine: explicit.rs"),
    ("install", "begin_install, and filled"),
    ("begin_evict", "waits as a move of an object's page does, with no frames: explicit.rs"),
    ("evict", "begin_evict, and filled"),
    ("filled", "ends a read that the machine has kept; files.rs"),
    ("written", "ends a write that the machine has kept; file_writes.rs"),
    ("msync", "write_back, for the mappings of a range: file_writes.rs"),
    ("write_back", "writes a file: file_writes.rs"),
    ("vma", "reads the tree in a section"),
    ("next_mapping", "reads the tree under the writer lock"),
    ("next_vma", "reads the tree under the writer lock"),
    ("next_smaps", "smaps, one VMA at a time"),
    ("page_state", "reads one entry in a section"),
    ("hugetlb_rss_pages", "smaps of the mappings of pools"),
    ("new_hugetlb_subpool", "PoolDeed::Subpool"),
    ("new_object", "nobody else knows it yet"),
    ("order", "reads one word"),
    ("limits", "reads one word"),
    ("nr_used", "reads one word"),
    ("offline_memory", "migrate_frame for each page: offline/, and under shuttle"),
    ("remove_memory", "takes only free frames, under the locks of offline_memory: offline/, resize"),
    ("poll_compaction_request", "writes one word"),
    ("errno", "a function of the error"),
    ("event", "a function of the refusal"),
];

fn read(path: &std::path::Path, text: &mut String) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        entries.for_each(|entry| read(&entry.unwrap().path(), text));
    } else {
        text.push_str(&std::fs::read_to_string(path).unwrap());
    }
}

/// An operation that is new to the core needs a deed.
#[test]
fn each_operation_of_the_core_is_a_deed() {
    let core = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../softfault/src");
    let mut text = String::new();
    FILES.iter().for_each(|file| read(&core.join(file), &mut text));
    let name = |line: &str| Some(line.strip_prefix("    pub fn ")?.split(['(', '<']).next()?.to_string());
    let operations: Vec<String> = text.lines().filter_map(name).collect();
    assert!(operations.len() > 40, "{operations:?}");
    let calls: Vec<&str> = Deed::ALL.iter().flat_map(|deed| deed.calls()).copied().collect();
    for operation in &operations {
        let is_out = LEFT_OUT.iter().any(|(name, _)| name == operation);
        let is_deed = calls.contains(&operation.as_str());
        assert!(is_deed != is_out, "{operation}: should be a call of a deed or left out with a reason");
    }
    for (name, _) in LEFT_OUT {
        assert!(operations.iter().any(|operation| operation == name), "{name} is left out, and is no operation");
    }
}
