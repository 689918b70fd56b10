//! The other CPU: a thread that reads and writes more than the caches hold until
//! it is told to end.

use crate::error::LabError;
use crate::os;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Bytes that it goes through, over and over: four times the largest last-level
/// cache that one CPU of a virtual machine is likely to have.
pub const BYTES: usize = 128 << 20;
/// Words between two looks at whether to end.
const CHUNK_WORDS: usize = 8192;

/// Streams until it is dropped.
pub struct Streamer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Streamer {
    /// On this CPU; it has been through its memory once when this returns.
    pub fn on(cpu: usize) -> Result<Streamer, LabError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, begun) = std::sync::mpsc::channel();
        let seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let pinned = os::pin(cpu);
            let mut words = vec![1u64; BYTES / size_of::<u64>()];
            // The waiter is there until it has been told.
            let _ = told.send(pinned);
            while !seen.load(Ordering::Relaxed) {
                for chunk in words.chunks_mut(CHUNK_WORDS) {
                    chunk.iter_mut().for_each(|word| *word = word.wrapping_mul(3));
                    if seen.load(Ordering::Relaxed) {
                        break;
                    }
                }
            }
        });
        let streamer = Streamer { is_over, thread: Some(thread) };
        begun.recv().map_err(|e| LabError::host("a thread that streams", e))??;
        Ok(streamer)
    }
}

impl Drop for Streamer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic over there has been printed.
            let _ = thread.join();
        }
    }
}
