//! A word that one rank writes, with numbers that go up, and others read. Whoever reads it sees a number between the one
//! that is known to be there and the last one that was written.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    /// The last number that was written.
    pub written: u64,
    /// The number that is there for certain.
    confirmed: u64,
    /// The largest number that anybody saw.
    seen: u64,
}

impl Register {
    /// The next number is written.
    pub fn write(&mut self) -> u64 {
        self.written += 1;
        self.written
    }

    /// All that was written up to this number is there.
    pub fn confirm(&mut self, number: u64) {
        self.confirmed = self.confirmed.max(number);
    }

    /// A read begins: what it sees at least.
    pub fn begin_read(&self) -> u64 {
        self.confirmed.max(self.seen)
    }

    /// It has ended: an error if its number cannot be.
    pub fn end_read(&mut self, least: u64, number: u64) -> Result<(), String> {
        if number < least || number > self.written {
            return Err(format!("number {number}, which is not in {least}..={}", self.written));
        }
        self.seen = self.seen.max(number);
        Ok(())
    }

    /// The writer reads what it has written itself: an error if it sees anything else.
    pub fn read_own(&mut self, number: u64) -> Result<(), String> {
        if number != self.written {
            return Err(format!("number {number} is there, the reader itself has put {} before", self.written));
        }
        self.seen = number;
        self.confirmed = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_is_confirmed_or_newer_and_never_goes_back() {
        let mut register = Register::default();
        register.write();
        register.confirm(1);
        register.write();
        let least = register.begin_read();
        assert!(register.end_read(least, 0).is_err() && register.end_read(least, 3).is_err());
        assert_eq!(register.end_read(least, 2), Ok(()));
        let least = register.begin_read();
        assert!(register.end_read(least, 1).is_err(), "somebody has seen 2 already");
        register.write();
        assert!(register.read_own(2).is_err() && register.read_own(3).is_ok());
    }
}
