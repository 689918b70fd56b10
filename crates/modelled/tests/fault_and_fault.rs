//! F1, F2: faults against faults.

use common::pager;
use common::{World, beside_pagers, explore, run};
use softfault_modelled::hooks::Mapping;
use softfault_modelled::{Access, Event, FaultLocking, Vpn};

fn both_fault(fault_locking: FaultLocking) {
    explore(2, move || {
        let w = World::new(fault_locking, 0, 2);
        w.touch(1);
        let fault = move || {
            w.space.handle_fault(0, Access::Write).unwrap();
        };
        run(vec![Box::new(fault), Box::new(fault)]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon + pager::nr_lost(), 2, "F1: resident +1");
        assert_eq!(w.vm.event(Event::AnonInstall), 2, "F1: one frame installed");
    });
}

#[test]
fn f1_lockfree() {
    both_fault(FaultLocking::Lockfree);
}

#[test]
fn f1_fastpath2004() {
    both_fault(FaultLocking::Fastpath2004);
}

#[test]
fn f1_split() {
    both_fault(FaultLocking::Split);
}

#[test]
fn f1_global() {
    both_fault(FaultLocking::Global);
}

/// Two faults that both miss the leaf table: one table, the other frame kept.
#[test]
fn f1_tables_race_too() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        run(vec![
            Box::new(move || {
                w.space.handle_fault(0, Access::Write).unwrap();
            }),
            Box::new(move || {
                w.space.handle_fault(4096, Access::Write).unwrap();
            }),
        ]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().tables, 1);
    });
}

/// F2: a CPU that sees the entry sees the whole descriptor: rmap finds the mapping.
#[test]
fn f2_descriptor_before_entry() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(1);
        let faulter = move || {
            w.space.handle_fault(0, Access::Write).unwrap();
        };
        let reader = move || {
            let Some(there) = w.space.translate_at_rest(0) else { return };
            let mut found = [Mapping { space: 0, vpn: Vpn(7) }; 2];
            let nr = w.vm.rmap_anon(there.pfn, &mut found);
            assert_eq!(
                (nr, found[0].vpn),
                (1, Vpn(0)),
                "F2: the descriptor was not complete when the entry was visible"
            );
        };
        run(vec![Box::new(faulter), Box::new(reader)]);
        w.check(&[]);
    });
}

beside_pagers![f1_lockfree, f1_fastpath2004, f1_split, f1_global, f1_tables_race_too, f2_descriptor_before_entry];
