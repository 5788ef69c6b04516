//! Tells which call a piece of output belongs to, by the thread that writes it. The program has a `write` and a `pthread_create` of its own, which
//! the linker prefers to those of the C library: what the program writes to descriptors 1 and 2 and the threads it starts pass
//! through here. What C code writes, and everything on systems other than Linux, is read from the descriptors instead.

#[cfg(target_os = "linux")]
mod output {
    use crate::{capture, current};
    use crate::system;
    use std::os::raw::{c_int, c_void};
    use std::sync::atomic::{AtomicBool, Ordering};

    static LAST_WORDS: AtomicBool = AtomicBool::new(false);

    /// Takes the place of the C library's `write`: output of a call is kept for that call, the rest is written as usual.
    ///
    /// # Safety
    /// As of `write(2)`: `from` is valid for `count` bytes.
    #[no_mangle]
    pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, count: usize) -> isize {
        if (fd == 1 || fd == 2) && !is_last_word(from, count) && is_captured(fd, from, count) {
            return count as isize;
        }
        system::write(fd, from, count)
    }

    /// The message that the allocator writes before it aborts the process. It goes straight to the daemon, which reports it as
    /// the cause of the end: to send it as a call's output would take memory, of which there is none.
    unsafe fn is_last_word(from: *const c_void, count: usize) -> bool {
        const BEGIN: &[u8] = b"memory allocation of ";
        if LAST_WORDS.load(Ordering::Relaxed) {
            return true;
        }
        let is_begin = !from.is_null()
            && count >= BEGIN.len()
            && std::slice::from_raw_parts(from.cast::<u8>(), BEGIN.len()) == BEGIN;
        if is_begin {
            // The message comes in several writes, and nothing follows it.
            LAST_WORDS.store(true, Ordering::Relaxed);
            if let Some(capture) = capture::current() {
                capture.step_aside();
            }
        }
        is_begin
    }

    unsafe fn is_captured(fd: c_int, from: *const c_void, count: usize) -> bool {
        let id = current::get();
        // Neither a handler of signals, which may have interrupted anything, nor a forked child may wait for a lock.
        if id == 0 || from.is_null() || count > isize::MAX as usize || system::is_in_signal() {
            return false;
        }
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), count);
        match capture::current() {
            Some(capture) if capture.process == std::process::id() => capture.take(fd as usize - 1, id, bytes),
            _ => false,
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod threads {
    use crate::current;
    use std::os::raw::{c_char, c_int, c_void};

    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    type Create = unsafe extern "C" fn(*mut c_void, *const c_void, Start, *mut c_void) -> c_int;

    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    const EAGAIN: c_int = 11;

    extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    struct Begin {
        id: u32,
        start: Start,
        argument: *mut c_void,
    }

    /// The C library's `pthread_create`; the thread works for the call of the one that starts it.
    ///
    /// # Safety
    /// As of `pthread_create(3)`.
    #[no_mangle]
    pub unsafe extern "C" fn pthread_create(
        thread: *mut c_void,
        attributes: *const c_void,
        start: Start,
        argument: *mut c_void,
    ) -> c_int {
        let found = dlsym(RTLD_NEXT, b"pthread_create\0".as_ptr().cast());
        if found.is_null() {
            return EAGAIN;
        }
        let create: Create = std::mem::transmute(found);
        let id = current::get();
        if id == 0 {
            return create(thread, attributes, start, argument);
        }
        let told = Box::into_raw(Box::new(Begin { id, start, argument }));
        let status = create(thread, attributes, begin, told.cast());
        if status != 0 {
            drop(Box::from_raw(told));
        }
        status
    }

    extern "C" fn begin(told: *mut c_void) -> *mut c_void {
        let Begin { id, start, argument } = *unsafe { Box::from_raw(told.cast::<Begin>()) };
        current::set(id);
        start(argument)
    }
}
