//! All processes, by number, and who is whose: parents, children, groups,
//! sessions. One lock for all of it, held for a few moves; locks on threads and signals are
//! taken inside.
//!
//! Number 1 is nobody's: what a child sees as its parent when the real one is
//! gone. Its children are forgotten as they end.

use super::Process;
use super::thread::Thread;
use crate::linux::file::life::Life;
use crate::linux::signal::{self, Info, NR_SIGNALS, bit};
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::general::SIGKILL;

/// Parent of those who have none.
pub const INIT: u32 = 1;
/// Numbers go up to this, then begin again; as Linux's default.
const MAX_PID: u32 = 32_768;

struct Entry {
    process: Arc<Process>,
    group: u32,
    session: u32,
    children: Vec<u32>,
    /// Its last thread has ended: it ties no group to another.
    ends: bool,
}

static TABLE: SpinLock<BTreeMap<u32, Entry>> = SpinLock::new(BTreeMap::new());
static NEXT: AtomicU32 = AtomicU32::new(INIT);

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

/// Adds a process; its group and session are its parent's, or its own.
pub fn insert(process: &Arc<Process>, parent: u32) {
    add(&mut TABLE.lock(), process, parent);
}

/// Adds the child that `thread` of process `pid` forks, or that becomes its sibling, to its
/// group and session, and gives it what was sent meanwhile to several processes
/// ([`members_for`]); false if SIGKILL was, and nothing is added.
pub fn insert_child(child: &Arc<Process>, pid: u32, same_parent: bool, thread: &Thread) -> bool {
    let mut table = TABLE.lock();
    let meanwhile = thread.signals.lock().forking.take().unwrap_or_default();
    if meanwhile & bit(SIGKILL) != 0 {
        return false;
    }
    let mut pending = child.pending.lock();
    let signals = (1..=NR_SIGNALS as u32).filter(|signal| meanwhile & bit(*signal) != 0);
    signals.for_each(|signal| pending.add(Info { signal, ..Info::default() }));
    drop(pending);
    let own = table.get(&pid).map(|e| (e.process.parent_pid(), (e.group, e.session)));
    let (grandparent, place) = own.unwrap_or((INIT, (pid, pid)));
    add(&mut table, child, if same_parent { grandparent } else { pid });
    if let Some(entry) = table.get_mut(&child.pid) {
        (entry.group, entry.session) = place;
    }
    true
}

fn add(table: &mut BTreeMap<u32, Entry>, process: &Arc<Process>, parent: u32) {
    let (mut group, mut session) = (process.pid, process.pid);
    if let Some(entry) = table.get_mut(&parent) {
        entry.children.push(process.pid);
        (group, session) = (entry.group, entry.session);
    }
    process.parent.store(parent, Ordering::Relaxed);
    let entry = Entry { process: process.clone(), group, session, children: Vec::new(), ends: false };
    table.insert(process.pid, entry);
}

/// Those that a signal to several processes is meant for, by number and group. Children
/// that they are forking get it when they are added.
pub fn members_for(signal: u32, is_meant: impl Fn(u32, u32) -> bool) -> Vec<Arc<Process>> {
    let table = TABLE.lock();
    let meant: Vec<_> =
        table.iter().filter(|(pid, e)| is_meant(**pid, e.group)).map(|(_, e)| e.process.clone()).collect();
    if signal != 0 {
        meant.iter().for_each(|process| note_for_forks(process, signal));
    }
    meant
}

/// Has the children that a process is forking, or begins to fork before the signal has
/// arrived, get a signal that it is to be sent. The caller has the table's lock: they are
/// added before or after.
fn note_for_forks(process: &Process, signal: u32) {
    process.coming.lock().add(signal);
    for thread in process.threads.lock().values() {
        if let Some(forking) = &mut thread.signals.lock().forking {
            *forking = signal::with(*forking, signal);
        }
    }
}

/// Forgets a process, which has no children any more; false if it was forgotten
/// already.
pub fn remove(pid: u32) -> bool {
    let mut table = TABLE.lock();
    let gone = table.remove(&pid);
    if let Some(parent) = gone.as_ref().and_then(|e| table.get_mut(&e.process.parent_pid())) {
        parent.children.retain(|c| *c != pid);
    }
    gone.iter().for_each(|entry| entry.process.life.forget());
    drop(table);
    gone.iter().for_each(|entry| entry.process.life.bell.ring());
    gone.is_some()
}

/// Gives the children of a process that ends to number 1; those that had ended
/// are forgotten. From here on it ties no group.
pub fn disown_children(pid: u32) {
    let mut gone = Vec::new();
    let mut table = TABLE.lock();
    if let Some(entry) = table.get_mut(&pid) {
        entry.ends = true;
    }
    let children = table.get_mut(&pid).map(|e| core::mem::take(&mut e.children)).unwrap_or_default();
    for child in children {
        let Some(entry) = table.get_mut(&child) else { continue };
        entry.process.parent.store(INIT, Ordering::Relaxed);
        if entry.process.has_ended() {
            gone.extend(table.remove(&child));
        }
    }
    gone.iter().for_each(|entry| entry.process.life.forget());
    drop(table);
    gone.iter().for_each(|entry| entry.process.life.bell.ring());
}

fn with<R>(pid: u32, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    TABLE.lock().get_mut(&pid).map(f)
}

/// The process with this number.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    with(pid, |e| e.process.clone())
}

/// The process of that life, until it was waited for; none if it is a thread's.
pub fn find_with_life(life: &Arc<Life>) -> Option<Arc<Process>> {
    find(life.number).filter(|process| Arc::ptr_eq(&process.life, life))
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

/// Whether nobody ties a group to another one of its session: no member has its parent
/// there, and nobody would continue it after a stop.
pub fn is_orphaned(group: u32) -> bool {
    let table = TABLE.lock();
    let ties = |member: &Entry| {
        let parent = table.get(&member.process.parent_pid());
        !member.ends && parent.is_some_and(|parent| parent.group != group && parent.session == member.session)
    };
    !table.values().any(|e| e.group == group && ties(e))
}

/// The children of a process, each with its group.
pub fn children(pid: u32) -> Vec<(Arc<Process>, u32)> {
    let table = TABLE.lock();
    let own = table.get(&pid).map_or(&[][..], |e| &e.children);
    own.iter().filter_map(|c| table.get(c)).map(|e| (e.process.clone(), e.group)).collect()
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
    let target =
        table.get(&pid).filter(|e| pid == caller || e.process.parent_pid() == caller).ok_or(GroupError::NotFound)?;
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
