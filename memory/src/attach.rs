//! Memory of another process that is mapped there only: the kernel copies (cross-memory attach).
//!
//! Nobody at the other side takes part in it, and each call is a system call: for memory that could not be made shared.

use std::io;

use crate::region::{Region, RegionMut};

/// Bytes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    process: i32,
    address: usize,
    bytes: usize,
}

impl Attached {
    /// Bytes at an address of the process with this number. `None`: no process has such a number, or no memory reaches
    /// that far.
    ///
    /// # Safety
    ///
    /// As long as this value or a copy of it is used, the process is the one that is meant, the bytes stay mapped there,
    /// readable and writable, and nobody there refers to them by a plain Rust reference.
    pub unsafe fn new(process: u32, address: u64, bytes: u64) -> Option<Attached> {
        let process = i32::try_from(process).ok().filter(|process| *process > 0)?;
        let (address, bytes) = (usize::try_from(address).ok()?, usize::try_from(bytes).ok()?);
        address.checked_add(bytes)?;
        Some(Attached { process, address, bytes })
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies bytes from `offset` on into `target`.
    ///
    /// # Errors
    ///
    /// What the system says: `PermissionDenied` if it does not let this process attach to the other one. Some of the bytes
    /// may have been copied.
    ///
    /// # Panics
    ///
    /// If the bytes are not inside.
    pub fn read(&self, offset: usize, target: RegionMut<'_>) -> io::Result<()> {
        self.each_piece(offset, target.len(), |done, remote| {
            let piece = target.slice(done, remote.iov_len);
            let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
            // SAFETY: `local` names the bytes of a region, which are writable by its contract; `remote` lies inside the
            // bytes that `new`'s contract is about, and is only read.
            unsafe { libc::process_vm_readv(self.process, &local, 1, &remote, 1, 0) }
        })
    }

    /// Copies `source` to the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`Attached::read`].
    ///
    /// # Panics
    ///
    /// If the bytes are not inside.
    pub fn write(&self, offset: usize, source: Region<'_>) -> io::Result<()> {
        self.each_piece(offset, source.len(), |done, remote| {
            let piece = source.slice(done, remote.iov_len);
            let local = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
            // SAFETY: `local` names the bytes of a region, which are readable by its contract and only read; `remote` lies
            // inside the bytes that `new`'s contract is about.
            unsafe { libc::process_vm_writev(self.process, &local, 1, &remote, 1, 0) }
        })
    }

    /// Moves all bytes, as many at a time as the system takes.
    fn each_piece(
        &self,
        offset: usize,
        bytes: usize,
        mut call: impl FnMut(usize, libc::iovec) -> isize,
    ) -> io::Result<()> {
        let inside = offset <= self.bytes && bytes <= self.bytes - offset;
        assert!(inside, "{bytes} bytes at offset {offset} are not inside {} bytes of a process", self.bytes);
        let mut done = 0;
        while done < bytes {
            let start = std::ptr::without_provenance_mut(self.address + offset + done);
            let moved = call(done, libc::iovec { iov_base: start, iov_len: bytes - done });
            match usize::try_from(moved) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(moved) => done += moved,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// This process is another one to the kernel as well.
    fn attach(memory: *mut u8, bytes: usize) -> Attached {
        let address = memory.expose_provenance() as u64;
        // SAFETY: the tests keep the memory, and refer to it only when nothing is copied.
        unsafe { Attached::new(std::process::id(), address, bytes as u64) }.expect("this process has a number")
    }

    #[test]
    fn bytes_written_are_those_read_and_others_stay() {
        let mut memory = vec![7_u8; 100_000];
        let attached = attach(memory.as_mut_ptr(), memory.len());
        let source: Vec<u8> = (0..50_000_u32).map(|number| number as u8).collect();
        attached.write(33_333, Region::from_slice(&source)).expect("one's own memory");
        assert_eq!(memory[33_333..83_333], source);
        assert!(memory[..33_333].iter().chain(&memory[83_333..]).all(|byte| *byte == 7));
        let mut back = vec![0; 50_001];
        attached.read(33_332, RegionMut::from_slice(&mut back)).expect("one's own memory");
        assert_eq!((back[0], &back[1..]), (7, &source[..]));
        attached.read(100_000, RegionMut::from_slice(&mut [])).expect("nothing at the end");
    }

    #[test]
    fn memory_that_is_not_there_and_processes_that_are_not_are_errors() {
        let (mut byte, mut memory) = ([0], [1_u8; 8]);
        // SAFETY: nothing is mapped in the first page, so nothing is touched.
        let nowhere = unsafe { Attached::new(std::process::id(), 16, 8) }.expect("a number");
        let error = nowhere.read(0, RegionMut::from_slice(&mut byte)).expect_err("no memory");
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        let address = memory.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: there is no process of this number, so nothing is touched.
        let nobody = unsafe { Attached::new(i32::MAX as u32, address, 8) }.expect("a number");
        let error = nobody.write(0, Region::from_slice(&byte)).expect_err("no process");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        for (process, address) in [(0, 0), (u32::MAX, 0), (1, u64::MAX)] {
            // SAFETY: there is no such memory, so it is not used.
            assert_eq!(unsafe { Attached::new(process, address, 8) }, None);
        }
    }

    #[test]
    #[should_panic(expected = "2 bytes at offset 7 are not inside 8 bytes")]
    fn what_is_outside_is_not_touched() {
        let mut memory = [1_u8; 8];
        let _ = attach(memory.as_mut_ptr(), 8).write(7, Region::from_slice(&[1, 2]));
    }
}
