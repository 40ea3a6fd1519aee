//! Which thread this is, as one number that costs a load: for the hot path, which has no time to ask the library.

/// A number that no other thread of this process has as long as this one runs. A later one may have it again.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, longarm_portable))))]
#[inline(always)]
pub fn current() -> usize {
    let number: usize;
    // SAFETY: the first word of the thread's own block holds the block's address, as the processor's ABI for thread-local
    // storage wants it; it is there in every thread, and nobody writes it while the thread runs.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) number, options(pure, readonly, nostack, preserves_flags));
    }
    number
}

/// As above: the address of a variable of this thread's own.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, longarm_portable)))))]
#[inline]
pub fn current() -> usize {
    thread_local! {
        static MINE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    MINE.with(|mine| std::ptr::from_ref(mine).addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_number_and_keeps_it() {
        let mine = current();
        let barrier = &std::sync::Barrier::new(4);
        let others: Vec<usize> = std::thread::scope(|scope| {
            let ask = move || {
                let number = current();
                barrier.wait(); // All are there at once.
                assert_eq!(number, current());
                number
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it only asks")).collect()
        });
        let mut all = [others, vec![mine]].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
        assert_eq!(mine, current());
    }
}
