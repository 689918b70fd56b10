//! Sets of CPUs.

/// The largest number of CPUs that a [`CpuSet`] can hold.
pub const MAX_CPUS: usize = 512;

/// A CPU, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u16);

/// A set of CPUs, by value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuSet {
    bits: [u64; MAX_CPUS / 64],
}

impl CpuSet {
    /// No CPU.
    pub const EMPTY: CpuSet = CpuSet { bits: [0; MAX_CPUS / 64] };

    /// The CPUs `0..nr_cpus`.
    ///
    /// # Panics
    ///
    /// Above [`MAX_CPUS`].
    pub fn first(nr_cpus: usize) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        (0..nr_cpus).for_each(|i| set.insert(CpuId(i as u16)));
        set
    }
    /// From words of 64 CPUs each, lowest first.
    pub fn from_words(bits: [u64; MAX_CPUS / 64]) -> CpuSet {
        CpuSet { bits }
    }
    /// Words of 64 CPUs each, lowest first.
    pub(crate) fn words(&self) -> [u64; MAX_CPUS / 64] {
        self.bits
    }
    /// The first `nr_most` members from number `first` on, wrapping around; and where the others
    /// begin.
    pub(crate) fn some_from(&self, first: u64, nr_most: usize) -> (CpuSet, u64) {
        let (mut some, mut next) = (CpuSet::EMPTY, first);
        let behind = self.iter().filter(|cpu| u64::from(cpu.0) >= first);
        let before = self.iter().filter(|cpu| u64::from(cpu.0) < first);
        for cpu in behind.chain(before).take(nr_most) {
            some.insert(cpu);
            next = u64::from(cpu.0) + 1;
        }
        (some, next)
    }
    /// Adds `cpu`.
    ///
    /// # Panics
    ///
    /// If its number is not below [`MAX_CPUS`]: a set cannot hold it.
    pub fn insert(&mut self, cpu: CpuId) {
        assert!(usize::from(cpu.0) < MAX_CPUS, "cpu is {}, should be below {MAX_CPUS}", cpu.0);
        self.bits[cpu.0 as usize / 64] |= 1 << (cpu.0 % 64);
    }
    /// Removes `cpu`. A number that no set can hold is in no set.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.bits.get_mut(usize::from(cpu.0) / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
    }
    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.bits.get(usize::from(cpu.0) / 64).is_some_and(|word| word & (1 << (cpu.0 % 64)) != 0)
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|w| *w == 0)
    }
    /// Whether it has no member except `cpu`.
    pub fn is_only(&self, cpu: CpuId) -> bool {
        let mut rest = *self;
        rest.remove(cpu);
        rest.is_empty()
    }
    /// The members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.bits.iter().enumerate().flat_map(|(i, &word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros();
                left &= left - 1;
                Some(CpuId((i * 64) as u16 + bit as u16))
            })
        })
    }
}
