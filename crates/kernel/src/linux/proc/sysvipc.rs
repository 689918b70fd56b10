//! `/proc/sysvipc`: the segments of shared memory. There are no message queues and semaphores of System V.

use crate::linux::attached::nr_attached;
use crate::linux::shm;
use core::fmt::{self, Write};

/// `shm`: a line for each segment, in columns as on Linux.
pub fn shm(out: &mut dyn Write) -> fmt::Result {
    write!(out, "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid")?;
    writeln!(out, "      atime      dtime      ctime                   rss                  swap")?;
    for segment in shm::all() {
        let (meta, rss_bytes) = (segment.meta(), segment.object.nr_resident_pages() * 4096);
        write!(out, "{:10} {:10}  {:4o} {:21}", meta.key, segment.id, meta.shown_mode(), segment.size_bytes)?;
        write!(out, " {:5} {:5}  {:5}", segment.creator_pid, meta.last_pid, nr_attached(&segment))?;
        write!(out, " {:5} {:5} {:5} {:5}", meta.uid, meta.gid, meta.creator[0], meta.creator[1])?;
        write!(out, " {:10} {:10} {:10}", meta.attached_s, meta.detached_s, meta.changed_s)?;
        writeln!(out, " {rss_bytes:21} {:21}", 0)?;
    }
    Ok(())
}
