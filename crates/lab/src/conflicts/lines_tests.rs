//! Small histories with known answers, and a slow model.

use super::*;
use std::collections::{HashMap, HashSet};

#[test]
fn a_line_travels_when_another_cpu_writes_it() {
    let mut lines = Lines::new();
    lines.write(0, 0x1000);
    lines.write(0, 0x1008);
    assert_eq!(lines.transfers, 0, "the first writer and its second write cost nothing");
    lines.write(1, 0x1038);
    lines.write(0, 0x1000);
    lines.write(0, 0x1040);
    assert_eq!(lines.transfers, 2, "there and back; the next line is another one");
    let mut hot: Vec<Hot> = lines.hot().collect();
    hot.sort_by_key(|h| h.addr);
    assert_eq!(hot.iter().map(|h| (h.addr, h.transfers)).collect::<Vec<_>>(), [(0x1000, 1), (0x1038, 1)]);
}

#[test]
fn a_read_misses_once_after_each_write_of_another() {
    let mut lines = Lines::new();
    lines.read(1, 0x2000);
    assert_eq!(lines.read_misses, 0, "nobody has written it");
    lines.write(0, 0x2000);
    for cpu in [1, 1, 2, 2, 1, 0] {
        lines.read(cpu, 0x2000);
    }
    assert_eq!(lines.read_misses, 2, "CPUs 1 and 2, once each; not the writer");
    lines.write(0, 0x2000);
    lines.read(2, 0x2000);
    lines.read(1, 0x2000);
    assert_eq!(lines.read_misses, 4);
}

#[test]
fn history_before_the_count_still_says_who_wrote() {
    let mut lines = Lines::new();
    lines.write(0, 0x1000);
    lines.write(1, 0x1000);
    lines.start_counting();
    assert_eq!((lines.transfers, lines.hot().count()), (0, 0));
    lines.write(0, 0x1000);
    assert_eq!(lines.transfers, 1);
}

#[test]
fn one_shared_counter_and_512_cpus() {
    let mut lines = Lines::new();
    for _ in 0..10 {
        (0..512).for_each(|cpu| lines.write(cpu, 0x3000));
    }
    assert_eq!(lines.transfers, 10 * 512 - 1);
}

#[test]
fn as_a_slow_model_says() {
    let mut lines = Lines::new();
    let mut writer: HashMap<usize, u16> = HashMap::new();
    let mut knows: HashMap<usize, HashSet<u16>> = HashMap::new();
    let (mut transfers, mut misses, mut random) = (0, 0, 12_345u64);
    for _ in 0..200_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (cpu, addr) = ((random >> 33) as u16 % 300, 0x7f00_0000_0000 + ((random >> 45) as usize % 64) * 8);
        let line = addr >> 6;
        if random >> 62 == 0 {
            transfers += u64::from(writer.insert(line, cpu).is_some_and(|before| before != cpu));
            knows.insert(line, HashSet::from([cpu]));
            lines.write(cpu, addr);
        } else {
            misses += u64::from(writer.contains_key(&line) && knows.entry(line).or_default().insert(cpu));
            lines.read(cpu, addr);
        }
    }
    assert!(transfers > 10_000 && misses > 10_000, "the history is too dull to test anything");
    assert_eq!((lines.transfers, lines.read_misses), (transfers, misses));
    assert_eq!(lines.hot().map(|h| h.transfers).sum::<u64>(), transfers);
    assert_eq!(lines.hot().map(|h| h.read_misses).sum::<u64>(), misses);
}
