//! Moves between memory that others may write and registers, each one instruction that the compiler cannot look into.
//!
//! They may read and write any memory (no `nomem`, no `readonly`), so they stay in the order in which they are written.

/// Loads a register of a class, taken for a type, from `from + offset`.
macro_rules! load {
    ($kind:ty, $register:ident, $move:literal, $from:expr, $offset:literal) => {{
        let value: $kind;
        // SAFETY: the routine that this stands in stays inside the source, or the target, by its caller's promise.
        unsafe {
            std::arch::asm!(
                concat!($move, " {value}, [{from} + ", $offset, "]"),
                value = out($register) value,
                from = in(reg) $from,
                options(nostack, preserves_flags)
            )
        }
        value
    }};
}

/// Stores a register at `to + offset`.
macro_rules! store {
    ($register:ident, $move:literal, $to:expr, $offset:literal, $value:expr) => {
        // SAFETY: the routine that this stands in stays inside the target, by its caller's promise.
        unsafe {
            std::arch::asm!(
                concat!($move, " [{to} + ", $offset, "], {value}"),
                value = in($register) $value,
                to = in(reg) $to,
                options(nostack, preserves_flags)
            )
        }
    };
}

pub(crate) use {load, store};
