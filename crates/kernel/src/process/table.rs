//! All processes, by number, and who is whose: parents, children, groups,
//! sessions. One lock for all of it, held for a few moves.
//!
//! Number 1 is nobody's: what a child sees as its parent when the real one is
//! gone. Its children are forgotten as they end.

use super::Process;
use crate::sync::SpinLock;
use crate::{mailbox, sched};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Parent of those who have none.
pub const INIT: u32 = 1;
/// Numbers go up to this, then begin again; as Linux's default.
const MAX_PID: u32 = 32_768;

struct Entry {
    process: Arc<Process>,
    parent: u32,
    group: u32,
    session: u32,
    children: Vec<u32>,
}

static TABLE: SpinLock<BTreeMap<u32, Entry>> = SpinLock::new(BTreeMap::new());
static NEXT: AtomicU32 = AtomicU32::new(INIT);
/// How often [`for_each_of`] has begun, and how often it was done.
static NR_BEGUN: AtomicU64 = AtomicU64::new(0);
static NR_DONE: AtomicU64 = AtomicU64::new(0);

/// A number that no process and hardly any thread has.
pub fn new_id() -> u32 {
    loop {
        let id = NEXT.fetch_add(1, Ordering::Relaxed) % MAX_PID;
        if id > INIT && !is_taken(id) {
            return id;
        }
    }
}

fn is_taken(id: u32) -> bool {
    let table = TABLE.lock();
    table.contains_key(&id) || table.values().any(|e| e.group == id || e.session == id)
}

/// Does something to each of several processes, as one step to fork(2): a process that
/// `find` does not give yet is added after it was done to all of them.
pub fn for_each_of(find: impl FnOnce() -> Vec<Arc<Process>>, what: impl FnMut(&Arc<Process>)) {
    NR_BEGUN.fetch_add(1, Ordering::SeqCst);
    find().iter().for_each(what);
    NR_DONE.fetch_add(1, Ordering::SeqCst);
}

/// Waits until nothing is being done to several processes; gives what
/// [`insert_unless_changed`] asks for.
pub fn wait_until_quiet() -> u64 {
    loop {
        // In this order: at the second load as many had ended.
        let nr_done = NR_DONE.load(Ordering::SeqCst);
        let nr_begun = NR_BEGUN.load(Ordering::SeqCst);
        if nr_done == nr_begun {
            return nr_begun;
        }
        // The thread that does it may wait for this CPU.
        sched::yield_now();
        mailbox::poll();
    }
}

/// Adds a process; its group and session are its parent's, or its own.
pub fn insert(process: &Arc<Process>, parent: u32) {
    add(&mut TABLE.lock(), process, parent);
}

/// The same, unless [`for_each_of`] has begun since there were `nr_begun`; whether it was
/// added.
pub fn insert_unless_changed(process: &Arc<Process>, parent: u32, nr_begun: u64) -> bool {
    let mut table = TABLE.lock();
    let is_same = NR_BEGUN.load(Ordering::SeqCst) == nr_begun;
    if is_same {
        add(&mut table, process, parent);
    }
    is_same
}

fn add(table: &mut BTreeMap<u32, Entry>, process: &Arc<Process>, parent: u32) {
    let (mut group, mut session) = (process.pid, process.pid);
    if let Some(entry) = table.get_mut(&parent) {
        entry.children.push(process.pid);
        (group, session) = (entry.group, entry.session);
    }
    table.insert(process.pid, Entry { process: process.clone(), parent, group, session, children: Vec::new() });
}

/// Forgets a process, which has no children any more; false if it was forgotten
/// already.
pub fn remove(pid: u32) -> bool {
    let mut table = TABLE.lock();
    let gone = table.remove(&pid);
    if let Some(parent) = gone.as_ref().and_then(|e| table.get_mut(&e.parent)) {
        parent.children.retain(|c| *c != pid);
    }
    drop(table);
    gone.is_some()
}

/// Gives the children of a process that ends to number 1; those that had ended
/// are forgotten.
pub fn disown_children(pid: u32) {
    let mut gone = Vec::new();
    let mut table = TABLE.lock();
    let children = table.get_mut(&pid).map(|e| core::mem::take(&mut e.children)).unwrap_or_default();
    for child in children {
        let Some(entry) = table.get_mut(&child) else { continue };
        entry.parent = INIT;
        if entry.process.has_ended() {
            gone.extend(table.remove(&child));
        }
    }
    drop(table);
}

fn with<R>(pid: u32, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    TABLE.lock().get_mut(&pid).map(f)
}

/// The process with this number.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    with(pid, |e| e.process.clone())
}

/// The process with this number, or the one with the next.
pub fn next(pid: u32) -> Option<Arc<Process>> {
    TABLE.lock().range(pid..).next().map(|(_, e)| e.process.clone())
}

/// The process that has a thread with this number.
pub fn find_with_thread(tid: u32) -> Option<Arc<Process>> {
    find(tid).or_else(|| all().into_iter().find(|p| p.threads.lock().contains_key(&tid)))
}

/// All of them, those that have ended and were not waited for included.
pub fn all() -> Vec<Arc<Process>> {
    TABLE.lock().values().map(|e| e.process.clone()).collect()
}

/// The members of a group.
pub fn in_group(group: u32) -> Vec<Arc<Process>> {
    TABLE.lock().values().filter(|e| e.group == group).map(|e| e.process.clone()).collect()
}

/// Whether nobody but `without` ties a group to another one of its session: no member has
/// its parent there, and nobody would continue it after a stop.
pub fn is_orphaned(group: u32, without: u32) -> bool {
    let table = TABLE.lock();
    let ties = |pid: u32, member: &Entry| {
        let parent = table.get(&member.parent);
        pid != without
            && !member.process.has_ended()
            && parent.is_some_and(|parent| parent.group != group && parent.session == member.session)
    };
    !table.iter().any(|(pid, e)| e.group == group && ties(*pid, e))
}

/// The children of a process, each with its group.
pub fn children(pid: u32) -> Vec<(Arc<Process>, u32)> {
    let table = TABLE.lock();
    let own = table.get(&pid).map_or(&[][..], |e| &e.children);
    own.iter().filter_map(|c| table.get(c)).map(|e| (e.process.clone(), e.group)).collect()
}

/// Number of the parent.
pub fn parent(pid: u32) -> u32 {
    with(pid, |e| e.parent).unwrap_or(INIT)
}

/// Group and session of a process.
pub fn group_and_session(pid: u32) -> Option<(u32, u32)> {
    with(pid, |e| (e.group, e.session))
}

/// Why a group was not changed; setpgid(2), setsid(2).
pub enum GroupError {
    /// No such process, or not one of the caller's.
    NotFound,
    /// Another session, or a leader.
    NotAllowed,
    /// The child runs a program of its own already.
    TooLate,
}

/// setpgid(2): `caller` puts `pid`, itself or a child of its, into `group`.
pub fn set_group(caller: u32, pid: u32, group: u32) -> Result<(), GroupError> {
    let mut table = TABLE.lock();
    let session = table.get(&caller).ok_or(GroupError::NotFound)?.session;
    let target = table.get(&pid).filter(|e| pid == caller || e.parent == caller).ok_or(GroupError::NotFound)?;
    if pid != caller && target.session == session && target.process.has_executed.load(Ordering::Relaxed) {
        return Err(GroupError::TooLate);
    }
    let is_leader = target.session == pid;
    let group_exists = group == pid || table.values().any(|e| e.group == group && e.session == session);
    if target.session != session || is_leader || !group_exists {
        return Err(GroupError::NotAllowed);
    }
    if let Some(entry) = table.get_mut(&pid) {
        entry.group = group;
    }
    Ok(())
}

/// setsid(2).
pub fn set_session(pid: u32) -> Result<(), GroupError> {
    let mut table = TABLE.lock();
    if table.values().any(|e| e.group == pid) {
        return Err(GroupError::NotAllowed);
    }
    let entry = table.get_mut(&pid).ok_or(GroupError::NotFound)?;
    (entry.group, entry.session) = (pid, pid);
    Ok(())
}
