//! A storage has one writer, and storages without an answer keep few callers.

use super::{NR_PLACES, Writers};
use crate::machine::StorageId;
use crate::testing::vm;
use crate::tunables::Tunables;
use std::vec::Vec;

#[test]
fn a_storage_has_one_writer() {
    let vm = vm(4096, Tunables::default());
    let writers = Writers::new();
    let claim = |storage| writers.claim(StorageId(storage), &vm.machine);
    // The number of a free place is no storage.
    let (first, second) = (claim(0).unwrap(), claim(u64::MAX).unwrap());
    assert!(claim(0).is_none() && claim(u64::MAX).is_none() && writers.has_any());
    drop(first);
    let again = claim(0).unwrap();
    assert!(claim(0).is_none());
    drop((again, second));
    assert!(!writers.has_any());
}

#[test]
fn storages_without_an_answer_keep_few_callers() {
    let vm = vm(4096, Tunables::default());
    let writers = Writers::new();
    let claim = |storage| writers.claim(StorageId(storage), &vm.machine);
    let mut claims: Vec<_> = (0..NR_PLACES as u64).map(|storage| claim(storage).unwrap()).collect();
    assert!(claim(100).is_none());
    drop(claims.remove(3));
    assert!(claim(100).is_some() && claim(3).is_some());
    // A caller that has a place needs no other one.
    let eighth = claim(3).unwrap();
    claims.push(eighth);
    let last = claims.last().unwrap();
    assert!(!last.change_to(StorageId(0), &vm.machine) && claim(3).is_none());
    assert!(last.change_to(StorageId(100), &vm.machine) && last.change_to(StorageId(100), &vm.machine));
    assert!(claim(3).is_none() && claim(100).is_none());
    drop(claims.pop());
    assert!(claim(3).is_some());
}
