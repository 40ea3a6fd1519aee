//! Lines of the protocol: `cmd=NAME key=value key=value`, and a connection that carries them one at a time.

use std::io::{self, Read, Write};

use crate::environment::shortened;
use crate::pmi1::error::Pmi1Error;
use crate::pmi1::limits::{LINE_BYTES_MAX, SENT_BYTES_MAX};

const READ_BYTES: usize = 4 << 10;

/// What carries the lines.
pub(crate) trait Link: Read + Write + Send {}
impl<T: Read + Write + Send> Link for T {}

/// A connection, of which lines are read whole.
pub(crate) struct Lines {
    link: Box<dyn Link>,
    /// What was read behind the last line.
    read: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(link: Box<dyn Link>) -> Lines {
        Lines { link, read: Vec::new() }
    }

    /// Sends a line, without its end, in one write.
    pub(crate) fn send(&mut self, line: &str) -> Result<(), Pmi1Error> {
        assert!(line.len() < SENT_BYTES_MAX, "keys and values are bounded before: {} bytes", line.len());
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Pmi1Error::Closed { wanted: "what it says" },
            _ => Pmi1Error::Connection(error),
        };
        self.link.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
        self.link.flush().map_err(failed)
    }

    /// Waits for a line that is called `wanted`.
    pub(crate) fn receive(&mut self, wanted: &'static str) -> Result<Reply, Pmi1Error> {
        let reply = self.receive_any(wanted)?;
        if reply.get("cmd") == Some(wanted) { Ok(reply) } else { Err(reply.unexpected(wanted)) }
    }

    /// Waits for a line, whatever it is called.
    pub(crate) fn receive_any(&mut self, wanted: &'static str) -> Result<Reply, Pmi1Error> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=searched + end).collect();
                return Ok(Reply::new(&line[..line.len() - 1]));
            }
            searched = self.read.len();
            if searched > LINE_BYTES_MAX {
                return Err(Pmi1Error::LongLine);
            }
            self.read.resize(searched + READ_BYTES, 0);
            let taken = self.link.read(&mut self.read[searched..]);
            self.read.truncate(searched + taken.as_ref().copied().unwrap_or(0));
            match taken {
                Ok(0) => return Err(Pmi1Error::Closed { wanted }),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What a socket says whose other end is gone with something unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Pmi1Error::Closed { wanted });
                }
                Err(error) => return Err(Pmi1Error::Connection(error)),
            }
        }
    }
}

/// A line that came.
pub(crate) struct Reply(String);

impl Reply {
    fn new(line: &[u8]) -> Reply {
        Reply(String::from_utf8_lossy(line).into_owned())
    }

    /// The value of a key, the first where there are several. Words without `=` say nothing.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let pairs = self.0.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        pairs.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Whether it says that what was asked for was not done. Without a word of it, it was.
    pub(crate) fn is_refusal(&self) -> bool {
        self.get("rc").is_some_and(|code| code != "0")
    }

    /// A number that has to be there.
    pub(crate) fn number(&self, key: &str, wanted: &'static str) -> Result<u32, Pmi1Error> {
        self.get(key).and_then(|value| value.parse().ok()).ok_or_else(|| self.unexpected(wanted))
    }

    pub(crate) fn unexpected(&self, wanted: &'static str) -> Pmi1Error {
        Pmi1Error::Unexpected { wanted, line: shortened(&self.0) }
    }

    /// An error where it says no.
    pub(crate) fn accepted(self, request: &'static str) -> Result<Reply, Pmi1Error> {
        if self.is_refusal() { Err(Pmi1Error::Refused { request, line: shortened(&self.0) }) } else { Ok(self) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Gives out its bytes a few at a time, as a slow connection does.
    struct Slow(Cursor<Vec<u8>>, usize);

    impl Read for Slow {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let bytes = out.len().min(self.1);
            self.0.read(&mut out[..bytes])
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(text: &str, at_once: usize) -> Lines {
        Lines::new(Box::new(Slow(Cursor::new(text.as_bytes().to_vec()), at_once)))
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        for at_once in [1, 3, 1 << 20] {
            let mut lines = lines("cmd=a x=1\ny=2 cmd=b msg\n cmd=c", at_once);
            assert_eq!(lines.receive("a").unwrap().get("x"), Some("1"));
            let second = lines.receive("b").unwrap();
            assert_eq!((second.get("y"), second.get("msg")), (Some("2"), None));
            assert!(matches!(lines.receive("c"), Err(Pmi1Error::Closed { wanted: "c" })));
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut lines = lines(&"a".repeat(10 * LINE_BYTES_MAX), 1 << 20);
        assert!(matches!(lines.receive("a"), Err(Pmi1Error::LongLine)));
        assert!(lines.read.capacity() < 4 * LINE_BYTES_MAX, "{}", lines.read.capacity());
    }

    #[test]
    fn a_value_may_hold_an_equals_sign() {
        let mut lines = lines("cmd=a value=b=c\n", 9);
        assert_eq!(lines.receive("a").unwrap().get("value"), Some("b=c"));
    }
}
