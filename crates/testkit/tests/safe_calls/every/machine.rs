//! Calls on a machine, as a trait and as the hosted one.

use super::*;
use softfault::machine::{LockKind, MemoryNode};
use softfault::policy::fault::FaultQuestion;
use softfault::sync::Word;
use softfault::{FileId, Flush, Machine, PageRange, SpaceTag, Tick, VmaFlags, Vpn};

/// Translations of spaces that there are, have been, and are not; ranges that are inverted.
fn flushes() -> impl Iterator<Item = Flush> {
    let range = |a: u64| NUMBERS.into_iter().map(move |b| Flush::Pages(PageRange { start: Vpn(a), end: Vpn(b) }));
    NUMBERS.into_iter().flat_map(range).chain([Flush::Space])
}

#[test]
fn machines() {
    with_others(|w| {
        let (vm, machine) = (w.vm, w.vm.machine());
        let ended = vm.new_space().unwrap().tag();
        let tags = [w.space.tag(), w.others.space.tag(), ended, SpaceTag { id: u64::MAX, root: Pfn(u32::MAX) }];
        let every = CpuSet::from_words([u64::MAX; softfault::MAX_CPUS / 64]);
        call("Machine::shootdown", || {
            for what in flushes() {
                tags.iter().for_each(|tag| machine.shootdown(*tag, &every, what));
            }
        });
        call("Machine::heavy_barrier", || machine.heavy_barrier(&every));
        call("Machine::frames", || assert_eq!(machine.frames()[0].nr_frames, 4096));
        call("Machine::frame_ptr", || machine.frame_ptr(Pfn(0)));
        assert!(panics(|| _ = machine.frame_ptr(Pfn(u32::MAX))).contains("machine check"));
        call("Machine::nr_frames_at_most", || machine.nr_frames_at_most());
        call("Machine::nr_nodes", || machine.nr_nodes());
        each("Machine::node_of_range", |range| assert_eq!(machine.node_of_range(range as usize), MemoryNode(0)));
        each("Machine::node_of_cpu", |cpu| assert_eq!(machine.node_of_cpu(CpuId(cpu as u16)), MemoryNode(0)));
        call("Machine::nr_cpus", || assert_eq!(machine.nr_cpus(), 2));
        call("Machine::this_cpu", || assert_eq!(machine.this_cpu(), CpuId(0)));
        call("Machine::top_leaf", || machine.top_leaf());
        call("Machine::marks_entries", || machine.marks_entries());
        call("Machine::vector_registers", || machine.vector_registers());
        call("Machine::shootdown_is_grace", || machine.shootdown_is_grace());
        call("Machine::relax", || machine.relax());
        let word = Word::new(7);
        each("Machine::park", |expected| machine.park(&word, expected));
        call("Machine::unpark", || machine.unpark(&word));
        call("Machine::tick", || machine.tick(Tick::Call));
        call("Machine::entered", || machine.entered(&word));
        call("Machine::fault_policy", || machine.fault_policy(&FaultQuestion::base(Access::Write, VmaFlags::all())));
        call("Machine::nr_swap_slots", || assert_eq!(machine.nr_swap_slots(), 16));
        each("Machine::storage", |file| _ = machine.storage(FileId(file)));
        pairs("Machine::may_store", |file, end| assert!(machine.may_store(FileId(file), end..file).is_err()));
        call("Machine::now_ns", || machine.now_ns());
        call("Machine::random", || machine.random());
        call("Machine::notify", || {
            let notice = Notice::Release;
            tags.iter().for_each(|tag| assert!(!machine.notify(*tag, &notice)));
        });
        assert!(LockKind::ALL.len() > 1);
    });
}

#[test]
fn hosted() {
    with_others(|w| {
        let machine = w.vm.machine();
        each("Hosted::bind", |cpu| assert!(machine.bind(CpuId(cpu as u16)).is_err(), "the thread is one"));
        each("Hosted::stats", |cpu| _ = machine.stats(CpuId(cpu as u16)));
        each("Hosted::tlb_stats", |cpu| _ = machine.tlb_stats(CpuId(cpu as u16)));
        each("Hosted::reset_tlb_stats", |cpu| _ = machine.reset_tlb_stats(CpuId(cpu as u16)));
        call("Hosted::write_foreign", || {
            // Frames of tables, of programs, of none; the file's are no foreign memory either.
            for first in [0, 1, 64, 4095, 4096, 1 << 15, u32::MAX].map(Pfn) {
                for nr_bytes in [1, 4096, 5000] {
                    let text = panics(|| machine.write_foreign(first, &vec![0xff; nr_bytes]));
                    assert!(text.contains("should be foreign memory"), "{text}");
                }
            }
        });
        call("Hosted::fail_copy", || machine.fail_copy(Some(u64::MAX - 1)));
        call("Hosted::failed_copy", || assert_eq!(machine.failed_copy(), None));
        machine.fail_copy(None);
        call("Hosted::fail_swap", || machine.fail_swap(true, true));
        machine.fail_swap(false, false);
        call("Hosted::mode", || machine.mode());
        call("Hosted::barrier", || machine.barrier());
        call("Hosted::violations", || assert_eq!(machine.violations(), (0, None)));
        call("Hosted::notices_lost", || assert_eq!(machine.notices_lost(), 0));
        call("Hosted::add_file", || machine.add_file(std::sync::Arc::new(Vec::new())));
        assert!(call("Hosted::on_notice", || machine.on_notice(Box::new(|_, _| false))).is_ok());
        assert!(call("Hosted::on_wait", || machine.on_wait(Box::new(|| {}))).is_ok());
        w.anew();
    });
    let mut machine = vm().into_machine();
    each("Hosted::soil", |word| machine.soil(word));
    call("Hosted::zero", || machine.zero());
    call("Machine::begin", || assert!(machine.begin() && !machine.begin()));
    call("Hosted::new", || {
        for bytes in [0, 1, 4095, u64::MAX - 4095, u64::MAX] {
            let config = HostedConfig::default();
            assert!(Hosted::new(config.with_arena_bytes(bytes)).is_err());
            assert!(
                call("Hosted::with_format", || Hosted::<Format>::with_format(config.with_spare_bytes(bytes | 1)))
                    .is_err()
            );
        }
    });
}
