//! The kinds of fault, and which of them a run may meet.

use std::fmt;
use std::str::FromStr;

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $breaks:literal,)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $variant,)+
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Fault] = &[$(Fault::$variant),+];

            /// What it is called on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)+
                }
            }

            /// Whether a connection ends or somebody dies by it.
            pub fn breaks(self) -> bool {
                match self {
                    $(Fault::$variant => $breaks,)+
                }
            }
        }
    };
}

faults! {
    /// Nothing of a link's one direction arrives for a while.
    Delay = "delay", false,
    /// Some links of a rank are held back and others not, so that what it sent first arrives last.
    Reorder = "reorder", false,
    /// A connection breaks at once.
    Drop = "drop", true,
    /// A connection breaks, and one end does not know.
    HalfOpen = "half-open", true,
    /// A connection breaks once so many more bytes were sent.
    Truncate = "truncate", true,
    /// A call that a rank or a router made before comes once more: an old attempt of its session.
    DuplicateConnect = "duplicate-connect", false,
    /// An operation on a window carries the generation of an earlier use.
    StaleWindow = "stale-window", false,
    /// An operation on a window carries another key.
    WrongKey = "wrong-key", false,
    /// Somebody calls a server or a router and does not know the secret.
    ForgedPeer = "forged-peer", false,
    /// Somebody calls a server or a router and goes no further.
    SilentPeer = "silent-peer", false,
    /// An end reads little at a time.
    SlowReader = "slow-reader", false,
    /// A rank does nothing for a while.
    PauseRank = "pause-rank", false,
    /// A server does nothing for a while.
    PauseServer = "pause-server", false,
    /// A rank is killed.
    KillRank = "kill-rank", true,
    /// The rank that hosts a server is killed, and the server with it.
    KillServer = "kill-server", true,
    /// All connections of a node break.
    RestartLink = "restart-link", true,
    /// Nothing from one node reaches another for a while.
    PartitionOneWay = "partition-one-way", false,
    /// Nothing between two nodes arrives for a while.
    PartitionTwoWay = "partition-two-way", false,
    /// There is no memory for a window.
    NoMemory = "no-memory", false,
    /// The clock of a server goes on by a lot at once.
    ClockJump = "clock-jump", false,
    /// A bit of what is under way changes. In jobs that encrypt, for only they notice.
    BitFlip = "bit-flip", true,
    /// One direction of a connection falls silent for good, and neither end is told. Not in jobs with devices, which find that out by themselves.
    SilentLink = "silent-link", true,
}

/// How many kinds there are.
pub const FAULTS: usize = Fault::ALL.len();

/// Some kinds of fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// Nothing goes wrong.
    pub const NONE: FaultSet = FaultSet(0);

    /// All kinds after which every operation still has to succeed.
    pub fn mild() -> FaultSet {
        Fault::ALL.iter().filter(|fault| !fault.breaks()).fold(FaultSet::NONE, |set, fault| set.with(*fault))
    }

    /// All kinds after which nobody is dead: connections break, and are made anew.
    pub fn survivable() -> FaultSet {
        FaultSet::all().without(Fault::KillRank).without(Fault::KillServer)
    }

    /// All kinds that a correct program does not notice: links are late or break, ranks and servers do nothing for a while.
    pub fn harmless() -> FaultSet {
        let noticed = [Fault::NoMemory];
        let survivable = FaultSet::survivable().of_programs();
        noticed.into_iter().fold(survivable, FaultSet::without)
    }

    /// Those of these that happen to programs of users: strangers, and requests that no sound rank sends, are of the simulator's own
    /// jobs.
    #[must_use]
    pub fn of_programs(self) -> FaultSet {
        let others =
            [Fault::DuplicateConnect, Fault::StaleWindow, Fault::WrongKey, Fault::ForgedPeer, Fault::SilentPeer];
        others.into_iter().fold(self, FaultSet::without)
    }

    /// All kinds that there are links for.
    pub fn all() -> FaultSet {
        Fault::ALL.iter().fold(FaultSet::NONE, |set, fault| set.with(*fault))
    }

    /// These and another one.
    pub fn with(self, fault: Fault) -> FaultSet {
        FaultSet(self.0 | 1 << fault as u32)
    }

    /// These without one.
    pub fn without(self, fault: Fault) -> FaultSet {
        FaultSet(self.0 & !(1 << fault as u32))
    }

    /// Whether a kind is among them.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u32 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.has(*fault))
    }

    /// Whether a connection may end or somebody may die.
    pub fn breaks(self) -> bool {
        self.iter().any(Fault::breaks)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Fault::name).collect();
        match names.as_slice() {
            [] => formatter.write_str("none"),
            _ if *self == FaultSet::all() => formatter.write_str("all"),
            _ if *self == FaultSet::survivable() => formatter.write_str("survivable"),
            _ if *self == FaultSet::mild() => formatter.write_str("mild"),
            _ if *self == FaultSet::harmless() => formatter.write_str("harmless"),
            names => formatter.write_str(&names.join(",")),
        }
    }
}

impl fmt::Debug for FaultSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// A name that stands for no fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        write!(
            formatter,
            "{} is no fault; there are none, mild, harmless, survivable, all, {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for FaultSet {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<FaultSet, UnknownFault> {
        let mut set = FaultSet::NONE;
        for name in text.split(',') {
            set = match name {
                "none" => set,
                "all" => FaultSet::all(),
                "survivable" => FaultSet(set.0 | FaultSet::survivable().0),
                "mild" => FaultSet(set.0 | FaultSet::mild().0),
                "harmless" => FaultSet(set.0 | FaultSet::harmless().0),
                name => {
                    let found = Fault::ALL.iter().find(|fault| fault.name() == name);
                    set.with(*found.ok_or_else(|| UnknownFault(name.to_owned()))?)
                }
            };
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_as_they_are_written() {
        let one = FaultSet::NONE.with(Fault::Delay).with(Fault::KillRank);
        for set in
            [FaultSet::NONE, FaultSet::mild(), FaultSet::harmless(), FaultSet::survivable(), FaultSet::all(), one]
        {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert!("hail".parse::<FaultSet>().unwrap_err().to_string().contains("half-open"));
    }

    #[test]
    fn nothing_mild_breaks_a_connection() {
        assert!(!FaultSet::mild().breaks() && FaultSet::all().breaks());
    }
}
