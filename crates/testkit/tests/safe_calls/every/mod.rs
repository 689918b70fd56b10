//! Each safe public function of the core and of the hosted machine: with values of another `Vm` and of another machine, and
//! with numbers at the ends of their ranges. None panics, but where its documentation says so, and both machines are whole
//! afterwards.
//!
//! `xtask/src/lint/safe_calls.rs` compares the names here with the functions that there are.

mod holds;
mod machine;
mod object;
mod program;
mod space;
mod values;
mod vm;

use super::values::on;
use super::*;
use common::objects::Object;
use softfault::policy::folio::FolioOrders;
use softfault::{Advice, FileFill, Lookup, MapFlags, MremapFlags, Pin, Subscription, Term, Walked};
use softfault_testkit::formats::Tested;

/// Numbers at the ends of ranges: of pages, of a program's addresses, of words.
const NUMBERS: [u64; 12] = [
    0,
    1,
    PAGE - 1,
    PAGE,
    BASE,
    BASE + 1,
    (1 << 47) - PAGE,
    1 << 47,
    1 << 63,
    u64::MAX - PAGE + 1,
    u64::MAX - 1,
    u64::MAX,
];

/// Calls a function whose name the lint looks for; the name is printed if the test fails.
fn call<T>(name: &str, f: impl FnOnce() -> T) -> T {
    eprintln!("{name}");
    f()
}

/// Calls one with each of the numbers.
fn each(name: &str, mut f: impl FnMut(u64)) {
    call(name, || NUMBERS.into_iter().for_each(&mut f));
}

/// Calls one with each pair of the numbers.
fn pairs(name: &str, mut f: impl FnMut(u64, u64)) {
    call(name, || NUMBERS.into_iter().for_each(|a| NUMBERS.into_iter().for_each(|b| f(a, b))));
}

/// 16 MiB, room for two sections, and a swap area.
fn vm() -> Vm<Hosted> {
    let config = Format::config()
        .with_nr_cpus(2)
        .with_arena_bytes(16 << 20)
        .with_spare_bytes((384 - 16) << 20)
        .with_swap_bytes(16 * PAGE);
    Vm::new(Hosted::with_format(config).unwrap(), Tunables::default()).unwrap()
}

/// Values of another `Vm`.
struct Others<'vm> {
    space: Space<'vm>,
    object: Object<'vm>,
    subscription: Subscription<'vm, Hosted>,
    lookup: Lookup<'vm>,
    walked: Walked<'vm>,
    pin: Pin<'vm, Hosted>,
    fill: Option<FileFill>,
}

impl<'vm> Others<'vm> {
    fn of(vm: &'vm Vm<Hosted>) -> Others<'vm> {
        let space = vm.new_space().unwrap();
        space.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        space.write(BASE, &[7; 4 * PAGE as usize]).unwrap();
        let object = vm.new_explicit_object(8 * PAGE, FolioOrders::BASE).unwrap();
        let active = space.activate();
        let walked = active.walker().translate(BASE, Access::Write).unwrap();
        drop(active);
        let subscription = space.subscribe();
        let lookup = subscription.lookup(&space, BASE).unwrap();
        let pin = space.pin_page(BASE, Term::Short).unwrap();
        let fill = object.begin_install(0..1).ok();
        Others { space, object, subscription, lookup, walked, pin, fill }
    }
}

/// The machine that is called, whose CPU 0 is the thread, and values of another one.
struct Here<'a, 'vm> {
    vm: &'vm Vm<Hosted>,
    cpu: &'a CpuGuard<'vm>,
    space: &'a Space<'vm>,
    others: &'a mut Others<'vm>,
}

impl Here<'_, '_> {
    /// Maps four pages of sevens at `BASE`, and nothing else.
    fn anew(&self) {
        self.space.munmap(0, (1 << 47) - PAGE).unwrap();
        self.space.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        self.space.write(BASE, &[7; 4 * PAGE as usize]).unwrap();
    }
}

/// Runs calls; afterwards both machines are whole, and the other one has what it had.
fn with_others(test: impl Fn(&mut Here<'_, '_>)) {
    let (a, b) = (vm(), vm());
    // A test that fails leaves them: their end needs a CPU of their machine.
    let mut others = std::mem::ManuallyDrop::new(on(&a, || Others::of(&a)));
    {
        let cpu = b.machine().bind(CpuId(0)).unwrap();
        let space = b.new_space().unwrap();
        let mut here = Here { vm: &b, cpu: &cpu, space: &space, others: &mut others };
        here.anew();
        test(&mut here);
        check(&b, &[&space]);
    }
    let a = &a;
    on(a, move || {
        check(a, &[&others.space]);
        let mut bytes = [0; 4 * PAGE as usize];
        others.space.read(BASE, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        let Others { space, object, pin, fill, .. } = std::mem::ManuallyDrop::into_inner(others);
        if let Some(fill) = fill {
            a.filled(fill, Ok(())).unwrap();
        }
        drop((pin, object, space));
    });
}
