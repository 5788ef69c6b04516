//! Which call the calling thread works for.

use std::cell::Cell;

thread_local! {
    /// Id of the call; 0 without one.
    static CALL: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread, and those that it starts, work for this call from now on; 0 for none.
pub fn set(id: u32) {
    CALL.with(|call| call.set(id));
}

/// 0 without a call.
pub fn get() -> u32 {
    CALL.with(Cell::get)
}
