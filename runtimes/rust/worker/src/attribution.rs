//! Which call a thread works for. What the program writes to descriptors 1 and 2, and the threads that it starts, come by
//! here first: a function of a program has precedence over the C library's of the same name. What C code writes, and
//! everything on systems other than Linux, comes by way of the descriptors.

use std::cell::Cell;

thread_local! {
    /// Id of the call; 0 without one.
    static CALL: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread, and those that it starts, work for this call from now on; 0 for none.
pub fn set(id: u32) {
    CALL.with(|call| call.set(id));
}

#[cfg(target_os = "linux")]
mod output {
    use super::CALL;
    use crate::capture;
    use crate::system;
    use std::os::raw::{c_int, c_void};

    /// The C library's `write`, with a look at whose output it is.
    ///
    /// # Safety
    /// As of `write(2)`: `from` is valid for `count` bytes.
    #[no_mangle]
    pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, count: usize) -> isize {
        if (fd == 1 || fd == 2) && is_captured(fd, from, count) {
            return count as isize;
        }
        system::write(fd, from, count)
    }

    unsafe fn is_captured(fd: c_int, from: *const c_void, count: usize) -> bool {
        let id = CALL.with(|call| call.get());
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
    use super::{set, CALL};
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
        let id = CALL.with(|call| call.get());
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
        set(id);
        start(argument)
    }
}
