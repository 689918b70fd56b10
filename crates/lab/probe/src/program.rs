//! Running the program, and what it took.

use crate::console::{Channel, Console};
use crate::{Args, sys, warm};
use core::ffi::CStr;
use core::fmt::Write;
use linux_raw_sys::general::{__kernel_old_timeval, O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, SIGKILL};

/// The status that a shell gives a program that cannot be run.
const CANNOT_RUN: i32 = 127;
/// The reference kernel starts its first program with the same.
const ENVIRONMENT: [&CStr; 2] = [c"PATH=/bin:/usr/bin", c"HOME=/"];

/// A file that takes the program's output, and has no name by the time the
/// program runs. Sent on after the clock has stopped, the output costs both
/// systems the same.
fn unnamed(path: &CStr) -> isize {
    let descriptor = sys::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC);
    sys::unlink(path);
    descriptor
}

/// Touches memory, then runs the program so many times, with a record for each.
pub fn run(console: &Console, marker: &CStr, repeats: u32, command: Args) {
    if let Err(error) = warm::warm() {
        return console.complain(format_args!("fork: error {}", -error));
    }
    for _ in 0..repeats.max(1) {
        let (output, errors) = (unnamed(c"/tmp/.softfault-output"), unnamed(c"/tmp/.softfault-errors"));
        let start_ns = sys::now_ns();
        let pid = match sys::fork() {
            0 => become_program(command, output, errors),
            pid if pid > 0 => pid,
            error => return console.complain(format_args!("fork: error {}", -error)),
        };
        let ended = wait_for(pid);
        let wall_ns = sys::now_ns() - start_ns;
        // Its remaining processes would run beside the next one.
        sys::kill(-pid, SIGKILL);
        forward(console, Channel::Output, output);
        forward(console, Channel::Error, errors);
        let us = |time: __kernel_old_timeval| time.tv_sec * 1_000_000 + time.tv_usec;
        let usage = &ended.usage;
        console.record(
            marker,
            format_args!(
                "{{\"wall_ns\":{wall_ns},\"user_us\":{},\"system_us\":{},\"minor_faults\":{},\"major_faults\":{},\
                 \"max_rss_kib\":{},\"status\":{}}}",
                us(usage.ru_utime),
                us(usage.ru_stime),
                usage.ru_minflt,
                usage.ru_majflt,
                usage.ru_maxrss,
                ended.status,
            ),
        );
    }
}

/// Waits for that child; an init is given others' children, too.
fn wait_for(pid: isize) -> sys::Ended {
    loop {
        let ended = sys::wait(-1);
        if ended.pid == pid || ended.pid < 0 {
            return ended;
        }
    }
}

/// The child's part.
fn become_program(command: Args, output: isize, errors: isize) -> ! {
    sys::new_session();
    let input = sys::open(c"/dev/null", O_RDONLY);
    for (from, to) in [(input, 0), (output, 1), (errors, 2)] {
        if from >= 0 && from != to {
            sys::dup2(from, to);
        }
    }
    if input > 2 {
        sys::close(input);
    }
    let mut environment = [core::ptr::null(); ENVIRONMENT.len() + 1];
    for (slot, text) in environment.iter_mut().zip(ENVIRONMENT) {
        *slot = text.as_ptr().cast();
    }
    let program = command.get(0);
    let error = sys::exec(program, command.pointers(), environment.as_ptr());
    let mut line = crate::console::Line::default();
    let _ = writeln!(line, "{}: cannot be run: error {}", program.to_str().unwrap_or("?"), -error);
    sys::write(2, line.bytes());
    sys::exit(CANNOT_RUN)
}

/// Sends what is in the file, and closes it.
fn forward(console: &Console, channel: Channel, file: isize) {
    if file < 0 {
        return;
    }
    let mut buffer = [0; 16 << 10];
    sys::rewind(file);
    loop {
        match sys::read(file, &mut buffer) {
            0 => break,
            len => console.send(channel, &buffer[..len]),
        }
    }
    sys::close(file);
}
