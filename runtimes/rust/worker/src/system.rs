//! The few calls of the system's C library that the standard library does not offer.

use std::os::raw::{c_int, c_void};

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

#[repr(C)]
struct Part {
    from: *const c_void,
    count: usize,
}

/// `mode_t`.
#[cfg(target_os = "linux")]
type Mode = u32;
#[cfg(not(target_os = "linux"))]
type Mode = u16;

const POLLIN: i16 = 1;
/// In the place of a descriptor that is not looked at.
pub const NONE: c_int = -1;
const F_SETFD: c_int = 2;
const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const FD_CLOEXEC: c_int = 1;
#[cfg(any(target_os = "linux", target_os = "android"))]
const O_NONBLOCK: c_int = 0o4000;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const O_NONBLOCK: c_int = 4;

extern "C" {
    fn pipe(ends: *mut c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn read(fd: c_int, to: *mut c_void, most: usize) -> isize;
    fn writev(fd: c_int, parts: *const Part, count: c_int) -> isize;
    fn poll(fds: *mut PollFd, count: std::os::raw::c_ulong, timeout: c_int) -> c_int;
    fn umask(mask: Mode) -> Mode;
    fn atexit(callback: extern "C" fn()) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: u32) -> c_int;
}

#[cfg(target_os = "linux")]
const SEND_BUFFER: (c_int, c_int) = (1, 7);
#[cfg(not(target_os = "linux"))]
const SEND_BUFFER: (c_int, c_int) = (0xffff, 0x1001);
/// What a socket takes before its other end has read: with less a worker waits in the middle of a large answer.
const SENT_BYTES: c_int = 2 << 20;

/// Lets a unix socket take large answers.
pub fn make_roomy(fd: c_int) {
    let (level, name) = SEND_BUFFER;
    unsafe { setsockopt(fd, level, name, (&SENT_BYTES as *const c_int).cast(), std::mem::size_of::<c_int>() as u32) };
}

/// Lets the C library keep memory of large bodies for the next ones: new pages cost more than what is done in them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_memory() {
    extern "C" {
        fn mallopt(name: c_int, value: c_int) -> c_int;
    }
    const TRIM_THRESHOLD: c_int = -1;
    const MMAP_THRESHOLD: c_int = -3;
    const KEPT_BYTES: c_int = 8 << 20;
    unsafe {
        mallopt(MMAP_THRESHOLD, KEPT_BYTES);
        mallopt(TRIM_THRESHOLD, KEPT_BYTES);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_memory() {}

/// Puts a pipe in a descriptor's place. Returns the pipe's end to read from, which does not wait, and the descriptor's old
/// target.
pub fn redirect(fd: c_int) -> Option<(c_int, c_int)> {
    let mut ends = [0; 2];
    let outside = unsafe { dup(fd) };
    unsafe {
        if outside < 0 || pipe(ends.as_mut_ptr()) != 0 || dup2(ends[1], fd) < 0 {
            return None;
        }
        close(ends[1]);
        fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) | O_NONBLOCK);
    }
    keep_from_children(ends[0]);
    keep_from_children(outside);
    Some((ends[0], outside))
}

/// Makes a descriptor lead where another one leads.
pub fn replace(from: c_int, fd: c_int) {
    unsafe { dup2(from, fd) };
}

/// Does something while new files have no bit of the mask.
pub fn with_umask<T>(mask: u32, act: impl FnOnce() -> T) -> T {
    let before = unsafe { umask(mask as Mode) };
    let result = act();
    unsafe { umask(before) };
    result
}

pub fn keep_from_children(fd: c_int) {
    unsafe { fcntl(fd, F_SETFD, FD_CLOEXEC) };
}

/// Bytes read; 0 when there are none now or at the end.
pub fn read_some(fd: c_int, to: &mut [u8]) -> usize {
    let count = unsafe { read(fd, to.as_mut_ptr().cast(), to.len()) };
    count.max(0) as usize
}

/// `write(2)`, by a function of the C library that this program has none of its own of.
///
/// # Safety
/// As of `write(2)`.
pub unsafe fn write(fd: c_int, from: *const c_void, count: usize) -> isize {
    writev(fd, &Part { from, count }, 1)
}

pub fn write_all(fd: c_int, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = unsafe { write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if count > 0 {
            bytes = &bytes[count as usize..];
        } else if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Which descriptors can be read, after at most `timeout_ms`; -1 waits for ever.
pub fn readable<const N: usize>(fds: [c_int; N], timeout_ms: c_int) -> [bool; N] {
    let mut waiting = fds.map(|fd| PollFd { fd, events: POLLIN, revents: 0 });
    let count = unsafe { poll(waiting.as_mut_ptr(), N as _, timeout_ms) };
    waiting.map(|at| count > 0 && at.revents != 0)
}

/// Appends what a descriptor has, at most so many bytes; 0 at the end, and of a connection that broke.
pub fn read_onto(fd: c_int, to: &mut Vec<u8>, most: usize) -> usize {
    to.reserve(most);
    loop {
        // A read that waits is woken by the other end's reads too, as they make room in the socket; this wait is not.
        readable([fd], -1);
        // The room behind what the vector holds is its own, and `most` bytes of it are there.
        let count = unsafe { read(fd, to.as_mut_ptr().add(to.len()).cast(), most) };
        if count >= 0 {
            unsafe { to.set_len(to.len() + count as usize) };
            return count as usize;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return 0;
        }
    }
}

/// True in a handler of signals that has a stack of its own, such as the one that tells of an overflow.
#[cfg(target_os = "linux")]
pub fn is_in_signal() -> bool {
    const SS_ONSTACK: c_int = 1;
    let mut now = SignalStack { start: std::ptr::null_mut(), flags: 0, size: 0 };
    unsafe { sigaltstack(std::ptr::null(), &mut now) != 0 || now.flags & SS_ONSTACK != 0 }
}

#[cfg(target_os = "linux")]
#[repr(C)]
struct SignalStack {
    start: *mut c_void,
    flags: c_int,
    size: usize,
}

#[cfg(target_os = "linux")]
extern "C" {
    fn sigaltstack(new: *const SignalStack, old: *mut SignalStack) -> c_int;
}

pub fn at_exit(callback: extern "C" fn()) {
    unsafe { atexit(callback) };
}
